//! Programs that tests ask.

use std::process::{Command, Output};

/// Runs a program; `None` where it is not there.
pub fn run(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIP: {program} is not there");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// What a program said, which must have succeeded.
#[track_caller]
pub fn succeeds(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{out}{err}");
    out + &err
}
