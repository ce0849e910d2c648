//! The server: its routes, who gets a place, and where each kind of work is done.
//!
//! Reading a prompt (rendering, tokens, grammars, images) blocks, so it has threads of the runtime's for that, two at a time: they would take processors from
//! the model. Vectors are computed one request at a time, for each takes memory of its own.

use crate::delivery;
use crate::error::{Refusal, answer};
use crate::guard;
use crate::mailbox::{Letters, mailbox};
use crate::options::Options;
use crate::queue::{Job, Queue};
use crate::upload::{self, UPLOADS};
use crate::{Error, chat, completions, embeddings, rerank, worker};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::serve::ListenerExt;
use ogive::engine::Request;
use ogive::tokenizer::template::ChatTemplate;
use ogive::{Answer, Conversation, Model};
use serde_json::json;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Prompts that are read at a time.
const READERS: usize = 2;
/// Answers that are written as text at a time.
const WRITERS: usize = 2;
/// How long a request may take to come.
const UPLOAD: Duration = Duration::from_secs(60);
/// How long connections may take to end once the server ends.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether the server is to end.
const LOOK: Duration = Duration::from_millis(50);

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model: Model,
    pub(crate) options: Options,
    /// Conversations without messages, by the model's template and by the one that has tools, or why there are none.
    pub(crate) talk: Result<Conversation, String>,
    pub(crate) with_tools: Result<Conversation, String>,
    /// None with a model that draws no tokens.
    queue: Option<Arc<Queue>>,
    places: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    computing: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
    /// Why nobody is answered any more.
    over: OnceLock<String>,
    /// When it was made, in seconds since 1970.
    since: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end("the server has ended");
    }
}

/// A place: what a request holds until it is answered.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

impl Shared {
    fn end(&self, why: &str) {
        _ = self.over.set(why.to_owned());
        if let Some(queue) = &self.queue {
            queue.end(why);
        }
        // Who waits for these is told, too. What is drawn already may be written yet.
        for waited_for in [&self.readers, &self.computing, &self.uploads] {
            waited_for.close();
        }
    }

    /// Why nobody is answered any more, if so.
    fn is_over(&self) -> Option<String> {
        self.over.get().cloned().or_else(|| self.queue.as_ref()?.is_over())
    }

    /// A request's body, and a place for it, if there is one.
    pub(crate) async fn admit(&self, request: axum::extract::Request) -> Result<(Bytes, Place), Refusal> {
        if let Some(why) = self.over.get() {
            return Err(Refusal::over(why));
        }
        if self.places.available_permits() == 0 {
            return Err(Refusal::full());
        }
        let body = upload::read(request.into_body(), self.options.body, &self.uploads);
        let late =
            |_| Refusal::status(StatusCode::REQUEST_TIMEOUT, "the request did not come within a minute");
        let (body, _turn) = tokio::time::timeout(UPLOAD, body).await.map_err(late)??;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refusal::full())?;
        Ok((body, Arc::new(place)))
    }

    /// Reads a request, off the async threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        blocking(&self.readers, read).await
    }

    /// What is computed of a request without the engine, off the async threads.
    pub(crate) async fn compute(
        self: Arc<Self>,
        request: axum::extract::Request,
        compute: fn(&[u8], &Self) -> Result<String, Refusal>,
    ) -> Result<Response, Refusal> {
        let (given, place) = self.admit(request).await?;
        let shared = Arc::clone(&self);
        let json = blocking(&self.computing, move || compute(&given, &shared)).await?;
        Ok(delivery::whole(json, place))
    }

    /// Writes what was drawn as text, off the async threads.
    pub(crate) async fn write(
        &self,
        write: impl FnOnce() -> Result<String, Refusal> + Send + 'static,
    ) -> Result<String, Refusal> {
        blocking(&self.writers, write).await
    }

    /// Has the engine draw these answers.
    pub(crate) fn draw(
        &self,
        asked: Vec<(Request, Answer)>,
        one_call: bool,
        place: &Place,
    ) -> Result<Letters, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(|| {
            Refusal::bad("this model draws no tokens, for it is an encoder or a reranker; ask for its vectors by /v1/embeddings, or for scores by /v1/rerank")
        })?;
        let (posts, letters) = mailbox(asked.len());
        let job =
            |((request, answer), post)| Job { request, answer, one_call, post, place: Arc::clone(place) };
        queue.push(asked.into_iter().zip(posts).map(job).collect())?;
        Ok(letters)
    }

    /// The head of an answer's object: its id, kind and time, and the model's name.
    pub(crate) fn head(&self, prefix: &str, object: &str) -> serde_json::Value {
        let id = format!("{prefix}-{:016x}{:08x}", random(), random() as u32);
        json!({ "id": id, "object": object, "created": now(), "model": self.options.name })
    }
}

async fn blocking<T: Send + 'static>(
    at_a_time: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let turn = Arc::clone(at_a_time).acquire_owned().await;
    let turn = turn.map_err(|_| Refusal::over("the server has ended"))?;
    let work = move || {
        // Whoever goes away does not end the work, so it has its turn itself.
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(Refusal::failed(format!("reading a request: {e}"))))
}

/// A number that nobody foresees.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(now())
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A model that is served. Cheap to clone; it ends when all clones and routers are gone.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

impl Server {
    /// Reserves the cache and starts the engine's thread. A model that has no chat template, draws no tokens or has no vectors is served as far as it goes;
    /// who asks for more is told.
    ///
    /// # Errors
    /// If a setting is wrong, or there is no memory for the cache.
    pub fn new(model: Model, mut options: Options) -> Result<Self, Error> {
        let wrong = |why: &str| Err(Error::Setting(why.to_owned()));
        if options.sequences == 0 {
            return wrong("no answers at a time are none at all: allow one at least (`Options::sequences`)");
        }
        if options.keys.iter().any(|key| key.is_empty()) {
            return wrong("an empty API key opens the door to everybody: leave it out to have none");
        }
        if let Some(origin) = &options.origin {
            guard::check_origin(origin)?;
        }
        // What a request says is to count, wherever these have their values.
        options.defaults.sampler = options.defaults.sampler.settled();
        let talk = match (&options.template, model.tokenizer()) {
            (Some(own), _) => Conversation::new(&model, ChatTemplate::new(own).map_err(ogive::Error::from)?),
            (None, Err(e)) => Err(e),
            (None, Ok(_)) => model.conversation(),
        };
        let with_tools = talk.as_ref().map_err(ToString::to_string);
        let with_tools = with_tools.and_then(|talk| talk.clone().tools([]).map_err(|e| e.to_string()));
        let queue = if model.is_encoder() || model.judges() {
            None
        } else {
            let limits = model.limits().clone().sequences(options.sequences);
            let rows = limits.step_tokens.max(options.sequences);
            let limits = options
                .cache_tokens
                .into_iter()
                .fold(limits.step_tokens(rows), ogive::engine::Limits::cache_tokens);
            let queue = Arc::<Queue>::default();
            let engine = model.engine(limits)?;
            worker::start(engine, &model.layers().cache_layout(), Arc::clone(&queue))
                .map_err(Error::Thread)?;
            Some(queue)
        };
        let places = options.sequences.saturating_add(options.queue).min(Semaphore::MAX_PERMITS);
        let semaphore = |n| Arc::new(Semaphore::new(n));
        let talk = talk.map_err(|e| e.to_string());
        Ok(Self(Arc::new(Shared {
            model,
            options,
            talk,
            with_tools,
            queue,
            places: semaphore(places),
            readers: semaphore(READERS),
            computing: semaphore(1),
            writers: semaphore(WRITERS),
            uploads: semaphore(UPLOADS),
            over: OnceLock::new(),
            since: now(),
        })))
    }

    /// Its routes, to be served, merged with a program's own, or nested in them. What is none of them below `/v1` is an error of OpenAI's form.
    pub fn router(&self) -> Router {
        let shared = &self.0;
        let mut routes = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/models/{*name}", get(model))
            .route("/v1/chat/completions", post(chat::answer))
            .route("/v1/completions", post(completions::answer))
            .route("/v1/embeddings", post(embeddings::answer))
            .route("/v1/rerank", post(rerank::answer));
        if !shared.options.keys.is_empty() {
            routes = routes.layer(from_fn_with_state(Arc::clone(shared), guard::key));
        }
        // No fallback: that is the program's to have, which may have only one.
        let routes = routes
            .route("/health", get(health))
            .route("/v1/{*path}", any(no_route))
            .method_not_allowed_fallback(no_method)
            .with_state(Arc::clone(shared));
        match shared.options.origin.clone() {
            Some(origin) => {
                routes.layer(from_fn(move |request, next| guard::origin(origin.clone(), request, next)))
            }
            None => routes.layer(from_fn(guard::no_origin)),
        }
    }

    /// Answers nobody any more: who waits is told so, and so are those whose answers are not whole. Vectors and scores that are being computed are
    /// still sent.
    pub fn end(&self) {
        self.0.end("the server is ending");
    }

    /// Serves on a socket, on this thread and a few that it starts, until `ended` says so. Then it [ends](Self::end), and connections have two
    /// seconds to close. For programs without a runtime of their own.
    ///
    /// # Errors
    /// If the socket cannot be used.
    pub fn serve(&self, socket: TcpListener, ended: impl Fn() -> bool) -> std::io::Result<()> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (say, mut hear) = tokio::sync::watch::channel(false);
        let routes = self.router().fallback(no_route);
        let served = runtime.block_on(async {
            // A token is to go out when it is drawn, and not with the next.
            let socket = tokio::net::TcpListener::from_std(socket)?
                .tap_io(|connection| _ = connection.set_nodelay(true));
            let shutdown = async move { _ = hear.wait_for(|ended| *ended).await };
            let serving =
                tokio::spawn(async { axum::serve(socket, routes).with_graceful_shutdown(shutdown).await });
            while !ended() && !serving.is_finished() {
                tokio::time::sleep(LOOK).await;
            }
            self.end();
            _ = say.send(true);
            match tokio::time::timeout(PATIENCE, serving).await {
                Ok(served) => served.map_err(std::io::Error::other)?,
                Err(_) => Ok(()),
            }
        });
        // What is read or computed for who has gone need not be waited for.
        runtime.shutdown_background();
        served
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match shared.is_over() {
        Some(why) => Refusal::over(&why).into_response(),
        None => answer(&json!({ "status": "ok" })),
    }
}

fn about(shared: &Shared) -> serde_json::Value {
    let (id, created, context) = (&shared.options.name, shared.since, shared.model.context());
    json!({ "id": id, "object": "model", "created": created, "owned_by": "ogive", "context_length": context })
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    answer(&json!({ "object": "list", "data": [about(&shared)] }))
}

async fn model(
    State(shared): State<Arc<Shared>>,
    axum::extract::Path(name): axum::extract::Path<String>,
) -> Result<Response, Refusal> {
    if name != shared.options.name {
        let why = format!("there is no model {name:?} here; there is {:?}", shared.options.name);
        return Err(Refusal::missing(why, Some("model_not_found")));
    }
    Ok(answer(&about(&shared)))
}

async fn no_route(request: axum::extract::Request) -> Refusal {
    let (method, path) = (request.method(), request.uri().path());
    Refusal::missing(
        format!("there is no {method} {path} here; see /v1/models and the routes of OpenAI's interface"),
        None,
    )
}

async fn no_method(request: axum::extract::Request) -> Refusal {
    let why = format!("{} does not take {}", request.uri().path(), request.method());
    Refusal::status(StatusCode::METHOD_NOT_ALLOWED, why)
}
