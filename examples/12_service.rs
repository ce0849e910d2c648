//! A service: one thread owns the engine, any number of clients hand it prompts and get pieces of text back. Who comes while others run
//! joins them at the next step; who goes away has its sequence cancelled. (An async runtime's own channels do the same.)
//!
//! `cargo run --release -p ogive-examples --example 12_service -- [MODEL]`

use ogive::engine::{Finish, Request};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::{collections::BTreeMap, env, error::Error, thread};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a client asks for, and where its answer goes. An error is the last piece.
struct Job(&'static str, usize, Sender<Result<String, String>>);

/// Serves until every client is gone and every answer given. Fails only where nobody can be served any more.
fn serve(model: &ogive::Model, jobs: &Receiver<Job>) -> Outcome<()> {
    let tokenizer = model.tokenizer()?;
    // Memory is bounded here: four answers at a time, later ones wait.
    let mut engine = model.engine(model.limits().clone().sequences(4))?;
    let mut answers = BTreeMap::new();
    loop {
        // Waits where there is nothing to do, and only looks where there is.
        match if engine.is_idle() { jobs.recv().map_err(Into::into) } else { jobs.try_recv() } {
            Ok(Job(prompt, max_tokens, answer)) => {
                let add = |ids: Vec<u32>| {
                    let text = tokenizer.stream_after(&ids);
                    // `.chain(model.chain(&params)?)` samples; without it the best token is drawn.
                    Ok((engine.add(Request::new(ids, max_tokens).stop(tokenizer.eog()))?, text))
                };
                match model.encode(&prompt.into()).and_then(add) {
                    Ok((id, text)) => _ = answers.insert(id, (text, answer)),
                    // A prompt that is too long, for one: that client's fault, and no one else's.
                    Err(e) => _ = answer.send(Err(e.to_string())),
                }
                continue;
            }
            Err(TryRecvError::Disconnected) if engine.is_idle() => return Ok(()),
            Err(_) => (),
        }
        for event in engine.step()? {
            let Some((text, answer)) = answers.get_mut(&event.id) else { continue };
            let token = event.token.filter(|t| !tokenizer.is_eog(*t));
            let mut piece = token.map(|t| text.push(t)).transpose()?.unwrap_or_default();
            if event.finish.is_some() {
                piece += &text.finish();
            }
            let listens = piece.is_empty() || answer.send(Ok(piece)).is_ok();
            if let Some(Finish::Failed(why)) = &event.finish {
                _ = answer.send(Err(why.to_string()));
            }
            if !listens {
                engine.cancel(event.id);
            }
            if !listens || event.finish.is_some() {
                answers.remove(&event.id);
            }
        }
    }
}

fn main() -> Outcome<()> {
    let model = ogive::open(env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into()))?;
    let (jobs, inbox) = channel();
    let service = thread::spawn(move || serve(&model, &inbox));
    // The second client hangs up after three pieces; the third asks for nothing.
    let clients = [("Once upon a time", 40, usize::MAX), ("The dog", 200, 3), ("Lily and Tom", 0, 1)];
    let clients = clients.map(|(prompt, max_tokens, pieces)| {
        let (answer, reader) = channel();
        _ = jobs.send(Job(prompt, max_tokens, answer));
        thread::spawn(move || (prompt, reader.iter().take(pieces).collect::<Result<String, String>>()))
    });
    drop(jobs);
    for client in clients {
        match client.join().map_err(|_| "a client panicked")? {
            (prompt, Ok(text)) => println!("> {prompt}{text}"),
            (prompt, Err(why)) => println!("> {prompt}: {why}"),
        }
    }
    service.join().map_err(|_| "the service panicked")?
}
