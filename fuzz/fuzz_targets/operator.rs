//! The operator's socket of the protect daemon: every line gets one line of JSON in answer, and only whole requests
//! become orders. A client takes or refuses any answer.
#![no_main]

use std::cell::Cell;

use laxity_protect::daemon::control::{Answer, Request, reply};
use laxity_protect::report::Board;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(line) = std::str::from_utf8(data) else {
        return;
    };
    let board = Board {
        host: "north".into(),
        vms: Vec::new(),
    };
    let orders = Cell::new(0);
    let answer = reply(line, &board, &|vm, _| {
        orders.set(orders.get() + 1);
        Err(format!("there is no virtual machine {vm}"))
    });
    let request = serde_json::from_str::<Request>(line);
    let is_order = request.is_ok_and(|request| request != Request::Status);
    assert_eq!(orders.get(), u32::from(is_order));
    let text = serde_json::to_string(&answer).expect("answers are JSON");
    assert!(!text.contains('\n'), "{text}");
    assert_eq!(
        serde_json::from_str::<Answer>(&text).expect("it was written here"),
        answer
    );
    let _ = serde_json::from_str::<Answer>(line);
});
