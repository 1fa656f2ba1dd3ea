//! A gate between two streams: one plays QEMU, the other the network.

use super::*;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const OWNER: Mac = [0x52, 0x54, 0, 1, 2, 3];

struct Scene {
    gate: Gate,
    guest: FrameStream,
    network: FrameStream,
}

fn scene() -> Scene {
    let (guest, guest_theirs) = UnixStream::pair().unwrap();
    let (network, network_theirs) = UnixStream::pair().unwrap();
    let outside = Port::Stream(FrameStream::new(network_theirs).unwrap());
    let gate = Gate::start(outside, OWNER, &[], 1 << 20).unwrap();
    gate.attach(guest_theirs).unwrap();
    Scene {
        gate,
        guest: FrameStream::new(guest).unwrap(),
        network: FrameStream::new(network).unwrap(),
    }
}

/// The first byte of each received frame, until `count` have arrived or none does for long.
fn numbers(stream: &mut FrameStream, count: usize) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut found = Vec::new();
    while found.len() < count && Instant::now() < deadline {
        match stream.receive().unwrap() {
            Some(frame) => found.push(frame[0]),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    found
}

impl Scene {
    fn say(&mut self, numbers: &[u8]) {
        for number in numbers {
            assert!(self.guest.send(&[*number; 60]).unwrap());
        }
    }

    /// Waits until the gate has refused `count` frames.
    fn refuses(&self, count: u64) {
        let deadline = Instant::now() + Duration::from_secs(600);
        while self.gate.counters().refused < count && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.gate.counters().refused, count);
    }

    /// Checks that only the expected frames leave: a last frame, let through, is the next to
    /// arrive.
    fn hears(&mut self, expected: &[u8]) {
        assert_eq!(numbers(&mut self.network, expected.len()), expected);
        thread::sleep(Duration::from_millis(2));
        assert_eq!(self.network.receive().unwrap(), None);
    }
}

#[test]
fn output_waits_for_its_checkpoint() {
    let mut scene = scene();
    scene.gate.set(Output::Hold);
    scene.say(&[1, 2]);
    scene.gate.cut(1);
    scene.gate.thaw();
    scene.say(&[3]);
    scene.hears(&[]);
    scene.gate.release(1);
    scene.hears(&[1, 2]);
    scene.gate.cut(2);
    scene.gate.thaw();
    scene.gate.release(1);
    scene.hears(&[]);
    scene.gate.release(2);
    scene.hears(&[3]);
    assert_eq!(scene.gate.counters().sent, 3);
}

#[test]
fn a_cut_takes_what_nobody_has_taken_yet() {
    let mut scene = scene();
    scene.gate.set(Output::Hold);
    {
        // The gate's own thread takes nothing while this lock is held.
        let mut inner = scene.gate.shared.lock().unwrap();
        scene.guest.send(&[1; 60]).unwrap();
        inner.cut(1);
    }
    scene.gate.thaw();
    scene.gate.release(1);
    scene.hears(&[1]);
}

#[test]
fn what_comes_after_a_cut_is_unseen_until_it_is_thawed() {
    let mut scene = scene();
    scene.gate.set(Output::Open);
    scene.say(&[1]);
    scene.hears(&[1]);
    scene.gate.cut(1);
    scene.say(&[2]);
    scene.hears(&[]);
    scene.gate.set(Output::Open);
    scene.hears(&[]);
    scene.gate.set(Output::Hold);
    scene.gate.thaw();
    scene.gate.release(1);
    scene.hears(&[]);
    scene.gate.set(Output::Open);
    scene.hears(&[2]);
}

#[test]
fn a_lease_ends() {
    let mut scene = scene();
    let soon_ns = now_ns() + 3_600_000_000_000;
    scene.gate.set(Output::Until {
        deadline_ns: soon_ns,
    });
    scene.say(&[1]);
    scene.hears(&[1]);
    scene.gate.set(Output::Until {
        deadline_ns: now_ns(),
    });
    scene.say(&[2]);
    scene.refuses(1);
    scene.gate.set(Output::Open);
    scene.say(&[3]);
    scene.hears(&[3]);
    assert_eq!(scene.gate.counters().refused, 1);
}

#[test]
fn a_closed_gate_forgets() {
    let mut scene = scene();
    scene.say(&[1]);
    scene.refuses(1);
    scene.gate.set(Output::Hold);
    scene.say(&[2]);
    scene.gate.cut(1);
    scene.gate.set(Output::Closed);
    scene.gate.set(Output::Open);
    scene.gate.thaw();
    scene.hears(&[]);
}

#[test]
fn who_begins_is_not_heard_before_it_is_allowed() {
    let mut scene = scene();
    scene.gate.begin();
    scene.say(&[1]);
    scene.hears(&[]);
    scene.gate.set(Output::Open);
    scene.hears(&[]);
    scene.gate.thaw();
    scene.hears(&[1]);
}

#[test]
fn another_guest_may_come() {
    let mut scene = scene();
    scene.gate.set(Output::Open);
    let (guest, theirs) = UnixStream::pair().unwrap();
    scene.gate.attach(theirs).unwrap();
    assert!(
        scene.guest.receive().is_err(),
        "the first one's connection has ended"
    );
    scene.guest = FrameStream::new(guest).unwrap();
    scene.say(&[1]);
    scene.hears(&[1]);
}

#[test]
fn input_passes_at_once_where_the_guest_runs() {
    let mut scene = scene();
    {
        let mut inner = scene.gate.shared.lock().unwrap();
        scene.network.send(&[1; 60]).unwrap();
        inner.take_from_outside();
    }
    scene.gate.begin();
    scene.network.send(&[2; 60]).unwrap();
    assert_eq!(numbers(&mut scene.guest, 1), [2]);
}

/// Frames that came at once are delivered, however many, though nothing comes after them.
#[test]
fn a_burst_passes_to_its_end() {
    const FRAMES: u8 = 3 * AT_ONCE as u8;
    let mut scene = scene();
    scene.gate.begin();
    {
        // The gate's own thread takes nothing while this lock is held.
        let _inner = scene.gate.shared.lock().unwrap();
        for number in 0..FRAMES {
            assert!(scene.network.send(&[number; 60]).unwrap());
        }
    }
    assert!(
        numbers(&mut scene.guest, FRAMES.into())
            .into_iter()
            .eq(0..FRAMES)
    );
}

/// What a guest's QEMU does to its own network ends with it.
#[test]
fn a_guest_that_is_out_of_step_leaves_the_gate_to_the_next_one() {
    for out_of_step in [&[0, 0, 0, 9, 1][..], &[255; 4]] {
        let mut scene = scene();
        let (mut guest, theirs) = UnixStream::pair().unwrap();
        scene.gate.attach(theirs).unwrap();
        guest.write_all(out_of_step).unwrap();
        scene.gate.cut(1);
        assert!(scene.gate.why_broken().is_some());
        let (guest, theirs) = UnixStream::pair().unwrap();
        scene.gate.attach(theirs).unwrap();
        assert_eq!(scene.gate.why_broken(), None);
        scene.guest = FrameStream::new(guest).unwrap();
        scene.gate.set(Output::Open);
        scene.gate.thaw();
        scene.say(&[1]);
        scene.hears(&[1]);
    }
}

/// A QEMU that was taken over sends without end, and whoever asks for the gate's state is answered;
/// this test would not end otherwise.
#[test]
fn a_guest_that_sends_without_end_keeps_nobody_waiting() {
    let scene = scene();
    let (mut guest, theirs) = UnixStream::pair().unwrap();
    scene.gate.attach(theirs).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let speaker = thread::spawn(move || {
        // Frames of no bytes: their lengths alone.
        let lengths = vec![0; 256 << 10];
        while !over.load(Ordering::Relaxed) && guest.write_all(&lengths).is_ok() {}
    });
    while scene.gate.counters().refused < 1_000_000 {
        thread::yield_now();
    }
    scene.gate.cut(1);
    is_over.store(true, Ordering::Relaxed);
    drop(scene);
    speaker.join().unwrap();
}

#[test]
fn a_learned_address_is_announced() {
    let mut scene = scene();
    let address: IpAddr = "192.0.2.9".parse().unwrap();
    scene.guest.send(&announcement(address, OWNER)).unwrap();
    scene.hears(&[]);
    scene.gate.cut(1);
    scene.gate.thaw();
    assert_eq!(scene.gate.addresses(), [address]);
    scene.gate.learn(["2001:db8::9".parse().unwrap()]);
    scene.gate.announce();
    scene.hears(&[0xff, 0x33]);
}

/// A guest sends without end while cuts happen at any moment: each frame leaves once, in order, and
/// none before its time.
#[test]
fn under_load() {
    const FRAMES: u32 = 2_000;
    let scene = scene();
    let Scene {
        gate,
        mut guest,
        mut network,
    } = scene;
    gate.set(Output::Hold);
    // Holding this lock keeps the guest from running.
    let running = Arc::new(Mutex::new(()));
    let runs = running.clone();
    let speaker = thread::spawn(move || {
        for number in 0..FRAMES {
            {
                let _running = runs.lock().unwrap();
                assert!(guest.send(&number.to_le_bytes()).unwrap());
            }
            // A full gate takes no more frames until a checkpoint releases some; the lock must not
            // delay that.
            while guest.has_pending() {
                thread::yield_now();
                let _running = runs.lock().unwrap();
                guest.flush().unwrap();
            }
        }
        guest
    });
    let listener = thread::spawn(move || {
        let mut next = 0_u32;
        while next < FRAMES {
            match network.receive().unwrap() {
                Some(frame) => {
                    assert_eq!(frame, next.to_le_bytes());
                    next += 1;
                }
                None => thread::sleep(Duration::from_micros(100)),
            }
        }
    });
    for checkpoint in 1.. {
        {
            let _stopped = running.lock().unwrap();
            gate.cut(checkpoint);
        }
        gate.thaw();
        gate.release(checkpoint);
        if listener.is_finished() {
            break;
        }
        thread::sleep(Duration::from_micros(100));
    }
    listener.join().unwrap();
    drop(speaker.join().unwrap());
    assert_eq!(gate.counters().dropped, 0);
}
