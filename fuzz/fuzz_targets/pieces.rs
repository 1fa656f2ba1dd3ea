//! Pieces of a stream of Xen's, packed by LZ4 on the other host: none unpacks to more than a piece, and what was packed
//! here comes out as it was.
#![no_main]

use laxity_protect::daemon::stream::{PIECE_BYTES, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(piece) = unpack(data) {
        assert!(piece.len() <= PIECE_BYTES);
    }
    let piece = &data[..data.len().min(PIECE_BYTES)];
    let packed = lz4_flex::compress_prepend_size(piece);
    assert_eq!(unpack(&packed).expect("it was packed here"), piece);
});
