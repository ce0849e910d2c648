//! `ogive serve`: a client over a socket, Ctrl-C, and command lines that are wrong. What it answers, `ogive-server` tests.

mod common;

use common::ogive;

#[cfg(not(feature = "server"))]
#[test]
fn a_program_without_a_server_says_how_to_have_one() {
    for more in [&[][..], &["--port", "80", "--nonsense"], &["--help"]] {
        let ran = ogive([&["serve"], more].concat());
        assert!(ran.error(2).contains("--features server"), "{}", ran.stderr);
    }
}

#[cfg(feature = "server")]
#[test]
fn what_cannot_be_served_is_told_before_the_model_is_loaded() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = ogive(["serve", "--model", "nowhere.gguf", "--port", &port]);
    assert!(ran.error(1).contains(&format!("listening at 127.0.0.1:{port}")), "{}", ran.stderr);
    for (args, code, why) in [
        (&["--host", "no.such.host.invalid"][..], 1, "listening at"),
        (&["--port", "0", "--api-key", ""], 2, "empty --api-key"),
        (&["--port", "0", "--json-schema", "{}"], 2, "a grammar for all answers"),
        (&["--port", "0", "--chat-template", "nowhere.jinja"], 1, "reading the template nowhere.jinja"),
        (&["--port", "0", "--parallel", "0"], 2, "at least 1"),
        (&["--port", "0", "--model", "nowhere.gguf"], 1, "nowhere.gguf"),
        (&["--port", "0", "--cors", "example.org", "-q"], 1, "is no origin"),
        (&["--port", "0", "--cache-tokens", "5", "-q"], 1, "too small"),
    ] {
        let ran = ogive([&["serve"], args].concat());
        assert!(ran.error(code).contains(why), "{}", ran.stderr);
    }
}

#[cfg(all(unix, feature = "server"))]
#[test]
fn a_client_is_answered_until_ctrl_c() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    let mut program = common::command();
    program
        .args(["serve", "--port", "0", "--temp", "0", "-c", "4000"])
        .env("OGIVE_API_KEY", "k")
        .stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("serving at")).unwrap();
    let address = line.split(['/', ';']).nth(2).unwrap().to_owned();
    let ask = |key: &str, json: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}"
        );
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{json}", json.len()).unwrap();
        stream
    };
    let read = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let question = r#"{"messages": [{"role": "user", "content": "What is the capital of Peru?"}]}"#;
    let said = read(ask("k", question));
    assert!(
        said.starts_with("HTTP/1.1 200 OK")
            && said.contains("Lima")
            && said.contains("\"model\":\"ogive-demo\""),
        "{said}"
    );
    assert!(read(ask("other", question)).starts_with("HTTP/1.1 401"));
    // An answer that would go on for long does not hold it.
    let long = r#"{"messages": [{"role": "user", "content": "Tell me a story."}], "stream": true, "ignore_eos": true, "temperature": 1}"#;
    let mut stream = ask("k", long);
    stream.read_exact(&mut [0; 64]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest = read(stream);
    assert!(rest.contains("the server is ending") || rest.contains("[DONE]"), "{rest}");
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}
