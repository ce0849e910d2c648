//! Language models over HTTP, as OpenAI's clients ask for them.
//!
//! ```no_run
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use ogive_server::{Options, Server, axum};
//! // With room for as many: otherwise a GPU may be filled up by the weights.
//! let model = ogive::Options::new().sequences(8).open("model.gguf")?;
//! let server = Server::new(model, Options::new().sequences(8))?;
//! // Routes of your own beside it, or around it.
//! let app = axum::Router::new().merge(server.router());
//! // Without delay: a token is to go out when it is drawn.
//! let socket = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! let socket = axum::serve::ListenerExt::tap_io(socket, |connection| _ = connection.set_nodelay(true));
//! axum::serve(socket, app).await?;
//! # Ok(()) }
//! ```
//!
//! The runtime needs its clock ([`enable_time`](tokio::runtime::Builder::enable_time), as `#[tokio::main]` has it). A program without a runtime calls [`Server::serve`].
//!
//! | | |
//! |---|---|
//! | `GET /health` | whether it answers; needs no key |
//! | `GET /v1/models` | the one model |
//! | `POST /v1/chat/completions` | conversations: streams, tools, structured output, images, log probabilities |
//! | `POST /v1/completions` | texts that go on |
//! | `POST /v1/embeddings` | vectors of texts |
//! | `POST /v1/rerank` | texts by how well they answer a question, where the model judges |
//!
//! A field that would change an answer and is not known to do so here is an error that says so; others are passed over, as clients send many. Which
//! model is asked for is not looked at: there is one, and its name is in the answer.
//!
//! One thread owns the [engine](ogive::engine::Engine) and steps it; what takes long does not block async tasks. Memory is bounded when the server is made: by
//! [`Options::sequences`] answers at a time, [`Options::queue`] requests that wait, and a body's length. A client that goes away has its sequence
//! cancelled. What is drawn while a client is slow waits as one piece, and the others do not; it has its place as long, and who takes nothing for three
//! minutes loses the rest. How many connections there are is for whoever serves to say, or a proxy.

mod base64;
mod chat;
mod completions;
mod delivery;
mod embeddings;
mod error;
mod fields;
mod guard;
mod mailbox;
mod messages;
mod options;
mod queue;
mod reply;
mod rerank;
mod sampling;
mod server;
mod sse;
mod tools;
mod upload;
mod worker;

pub use axum;
pub use options::Options;
pub use server::Server;

/// Why a server cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no memory for the answers, or the model is none that can be served.
    #[error(transparent)]
    Model(#[from] ogive::Error),
    /// The engine's thread could not be started.
    #[error("starting the engine's thread: {0}")]
    Thread(std::io::Error),
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
}
