//! Policies in place of those that are built in, so that tests of broken policies need not be built.

use crate::ffi::{Tables, laxity_tables};
use std::ffi::CString;
use std::sync::LazyLock;

/// The policies' tables: those of the shared object that `LAXITY_POLICIES` names, made by
/// `make -C policy shared`, or without it those that are built in.
pub fn tables() -> *const Tables {
    static ADDRESS: LazyLock<usize> = LazyLock::new(|| {
        let Some(path) = std::env::var_os("LAXITY_POLICIES") else {
            return &raw const laxity_tables as usize;
        };
        let path = CString::new(path.into_encoded_bytes()).expect("no variable has a zero");
        // SAFETY: the path ends with a zero, and what is opened has no initializers.
        let object = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!object.is_null(), "{path:?} cannot be opened");
        // SAFETY: the object is open and stays so, and the name ends with a zero.
        let tables = unsafe { libc::dlsym(object, c"laxity_tables".as_ptr()) };
        assert!(!tables.is_null(), "{path:?} has no policies");
        tables as usize
    });
    *ADDRESS as *const Tables
}
