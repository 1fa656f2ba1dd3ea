//! The streams in a capture, for voice quality, and what mixing voice costs.

use crate::interrupts::interruptible;
use laxity_config::input;
use laxity_media::mix;
use laxity_media::signalling::PayloadTypes;
use laxity_media::streams::{self, Unreadable};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::path::Path;

/// What was found, as JSON; for each stream sequence numbers and times of arrival, as little-endian int64 bytes.
type StreamsAndTimes = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// The RTP streams in a capture. The JSON has `packets`, `not_udp`, `not_rtp`, `cut_packet`, and for each of `streams`
/// a `name`, and either `codec`, `packet_ns`, `opus` and `left_out` or the `problem` with it. The list has the stream's
/// numbers, counted on, and its times of arrival, ns since 1970. The payload types `opus`, 96 to 127, are Opus where
/// signalling in the capture says nothing of them.
#[pyfunction]
pub fn rtp_streams(py: Python<'_>, path: &str, opus: Vec<u8>) -> PyResult<StreamsAndTimes> {
    let told = PayloadTypes::of_opus(&opus)
        .ok_or_else(|| PyValueError::new_err("payload types of Opus are 96 to 127"))?;
    let file =
        input::open(Path::new(path)).map_err(|error| PyOSError::new_err(error.to_string()))?;
    let found =
        interruptible(py, move || streams::read(file, told))?.map_err(|error| match error {
            Unreadable::System(error) => PyOSError::new_err(error.to_string()),
            error => PyValueError::new_err(error.to_string()),
        })?;
    let mut times = Vec::new();
    let mut said = Vec::new();
    for stream in &found.streams {
        let name = stream.to_string();
        let packets = stream.packets.len();
        match stream.playable() {
            Ok(playable) => {
                said.push(serde_json::json!({
                    "name": name,
                    "packets": packets,
                    "codec": playable.codec,
                    "packet_ns": playable.packet_ns,
                    "opus": playable.opus,
                    "left_out": playable.left_out,
                }));
                times.push((bytes(&playable.sequence), bytes(&playable.arrived_ns)));
            }
            Err(problem) => {
                said.push(serde_json::json!({
                    "name": name,
                    "packets": packets,
                    "problem": problem.to_string(),
                }));
                times.push((Vec::new(), Vec::new()));
            }
        }
    }
    let said = serde_json::json!({
        "packets": found.packets,
        "not_udp": found.not_udp,
        "not_rtp": found.not_rtp,
        "cut_packet": found.cut_packet,
        "streams": said,
    });
    Ok((said.to_string(), times))
}

/// The CPU time of mixing what the participants of a conference say, for each of `times` packets' times, as
/// little-endian int64 nanoseconds. `speech` has little-endian int16 samples; each participant says it from another
/// place on.
#[pyfunction]
pub fn mixing_ns(
    py: Python<'_>,
    speech: &[u8],
    participants: usize,
    packet_samples: usize,
    times: usize,
) -> PyResult<Vec<u8>> {
    let samples: Vec<i16> = speech
        .chunks_exact(2)
        .map(|octets| i16::from_le_bytes([octets[0], octets[1]]))
        .collect();
    if participants == 0 || packet_samples == 0 || samples.len() < packet_samples {
        let message = "a conference has participants, who say at least one packet";
        return Err(PyValueError::new_err(message));
    }
    let taken_ns = py.detach(move || mix::mixing_ns(&samples, participants, packet_samples, times));
    Ok(bytes(&taken_ns))
}

fn bytes(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
