//! The program `ogive`. Everything is in the library beside this, so that tests can reach it.

fn main() -> std::process::ExitCode {
    ogive_cli::main()
}
