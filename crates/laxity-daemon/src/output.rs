//! The standard output of programs: one that has lost its reader ends them without a word, as it ends other tools in a
//! pipe, where the standard library's macros would panic.

use std::fmt;
use std::io::{self, Write as _};
use std::process;

/// What a shell reports of a program that has written into a pipe without a reader: 128 and the signal's number.
const UNREAD: i32 = 128 + 13;

/// Prints; ends the program if that is not possible.
pub fn print(text: fmt::Arguments<'_>) {
    let mut output = io::stdout().lock();
    let printed = output.write_fmt(text).and_then(|()| output.flush());
    if let Err(error) = printed {
        if error.kind() != io::ErrorKind::BrokenPipe {
            eprintln!("error: cannot write the output: {error}");
            process::exit(2);
        }
        process::exit(UNREAD);
    }
}

/// Prints a line as [`print`] does, in place of the standard library's macro.
#[macro_export]
macro_rules! println {
    ($($line:tt)*) => {
        $crate::print(format_args!("{}\n", format_args!($($line)*)))
    };
}
