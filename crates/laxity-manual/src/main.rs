//! Writes the man pages and the shell completion of Laxity's programs into a directory. Both are made from the
//! definitions of the command lines.
//!
//!     laxity-manual DIRECTORY DATE
//!
//! `man/` gets a page for each program and each command of it, dated DATE (YYYY-MM-DD); `completion/` gets a script for
//! each program and shell.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, date] = &arguments[..] else {
        eprintln!("usage: laxity-manual DIRECTORY DATE");
        return ExitCode::from(2);
    };
    if let Err(error) = write(Path::new(directory), date) {
        eprintln!("error: {directory}: {error}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

fn write(directory: &Path, date: &str) -> io::Result<()> {
    let (pages, scripts) = (directory.join("man"), directory.join("completion"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&scripts)?;
    let programs: [Command; 3] = [
        laxity_bandwidth::arguments::Arguments::command(),
        laxity_media::arguments::Arguments::command(),
        laxity_protect::arguments::Arguments::command(),
    ];
    for program in programs {
        let name = program.get_name().to_owned();
        for shell in SHELLS {
            generate_to(shell, &mut program.clone(), &name, &scripts)?;
        }
        // Completion offers the command `help`; a manual does not need its pages.
        let mut program = program.disable_help_subcommand(true);
        program.build();
        write_pages(&program, &pages, date)?;
    }
    Ok(())
}

/// Writes the page of a command and those of its own commands.
fn write_pages(command: &Command, directory: &Path, date: &str) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|each| !each.is_hide_set());
    for subcommand in shown {
        write_pages(subcommand, directory, date)?;
    }
    Man::new(command.clone())
        .date(date)
        .source(concat!("Laxity ", env!("CARGO_PKG_VERSION")))
        .manual("Laxity")
        .generate_to(directory)?;
    Ok(())
}
