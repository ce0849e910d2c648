//! `ogive serve`: a model over HTTP, as OpenAI's clients ask for it.
//!
//! The socket is taken before the model is loaded, and so is what the template file says: what is wrong with a command line is told at once, and not after minutes.

use crate::args::Context;
use crate::drafting::Drafting;
use crate::error::{Doing, Error, Result};
use crate::options::{Machine, ModelPath};
use crate::sampling::Sampling;
use ogive::Options;
use ogive_server::Server;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Arguments of `ogive serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelPath,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    drafting: Drafting,
    /// The address to listen at; 0.0.0.0 lets others in, and wants an --api-key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// The port; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// A key that requests must have. May be given several times; in the environment it is in no list of processes [env: OGIVE_API_KEY]
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// The origin of web pages that may ask by a browser, or * for all [default: none may]
    #[arg(long, value_name = "ORIGIN")]
    cors: Option<String>,
    /// What the model is called in answers [default: the name of its file or folder]
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    /// Answers that are drawn at a time
    #[arg(long, visible_alias = "np", value_name = "N", default_value = "4")]
    parallel: NonZeroUsize,
    /// Requests that may wait for those; more are told to come again
    #[arg(long, value_name = "N", default_value_t = 64)]
    queue: usize,
    /// Tokens of a prompt and its answer together [default: the model's, up to 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<usize>,
    /// Tokens that all answers together may keep [default: a whole context each]
    #[arg(long, value_name = "N")]
    cache_tokens: Option<NonZeroUsize>,
    /// The largest request, in megabytes
    #[arg(long, value_name = "N", default_value = "32")]
    body_limit: NonZeroUsize,
    /// A Jinja file instead of the model's chat template
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Takes images in messages, for a model that sees
    #[arg(long)]
    vision: bool,
    /// What the model sees by, where that is not beside its weights: a GGUF file of its own (mmproj-….gguf), or a Hugging Face folder
    #[arg(long, value_name = "MODEL")]
    mmproj: Option<PathBuf>,
    // Last, for its heading holds for all that follows. It is what a request does not say.
    #[command(flatten)]
    sampling: Sampling,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let defaults = args.sampling.generate()?;
    if defaults.grammar.is_some() {
        let why = "a grammar for all answers leaves none to conversations: give it with a request (`grammar`, `response_format`)";
        return Err(Error::Usage(why.into()));
    }
    if args.api_key.iter().any(String::is_empty) {
        return Err(Error::Usage(
            "an empty --api-key opens the door to everybody: leave it out to have none".into(),
        ));
    }
    // Whoever lets others in and has no key is told: it may be what is wanted behind a proxy.
    let alone = ["127.0.0.1", "::1", "localhost"].contains(&&*args.host) || !keys(&args.api_key).is_empty();
    if !alone {
        context.note(format_args!("--host {} without an --api-key: whoever reaches it may ask", args.host));
    }
    let template = args.chat_template.as_deref().map(template).transpose()?;
    let address = format!(
        "{}:{}",
        if args.host.contains(':') { format!("[{}]", args.host) } else { args.host.clone() },
        args.port
    );
    let socket =
        TcpListener::bind(&address).doing(format_args!("listening at {address} (--host, --port)"))?;
    let path = args.model.get(context);
    let options = args.machine.options_for(args.context)?.sequences(args.parallel.get());
    let options = match &args.mmproj {
        Some(other) => options.vision_from(other),
        None if args.vision => Options::vision(options),
        None => options,
    };
    let model = Machine::open_with(&options, path, context)?;
    let model = args.drafting.over(model, &args.machine, args.context, context)?;
    if model.chat_template().is_none() && template.is_none() {
        context.note("the model has no chat template: conversations (/v1/chat/completions) are refused; --chat-template FILE gives it one");
    }
    let mut serving = ogive_server::Options::new()
        .name(args.alias.clone().unwrap_or_else(|| name(path)))
        .sequences(args.parallel.get())
        .queue(args.queue)
        .body(args.body_limit.get().saturating_mul(1_000_000))
        .defaults(defaults.clone());
    serving.keys = keys(&args.api_key);
    serving.origin.clone_from(&args.cors);
    serving.template = template;
    serving.cache_tokens = args.cache_tokens.map(NonZeroUsize::get);
    serving.seed = args.sampling.is_seeded().then_some(defaults.sampler.seed);
    let server = Server::new(model, serving)?;
    let patience = context.interrupt.patience();
    context.note(format_args!(
        "serving at http://{}; Ctrl-C ends it",
        socket.local_addr().doing("asking for the address")?
    ));
    server.serve(socket, || patience.over()).doing(format_args!("serving at {address}"))?;
    Err(Error::Interrupted)
}

/// The keys of the command line, or else that of the environment.
fn keys(given: &[String]) -> Vec<String> {
    let own = std::env::var("OGIVE_API_KEY").ok().filter(|key| !key.is_empty() && given.is_empty());
    given.iter().cloned().chain(own).collect()
}

/// What a model is called after its path.
fn name(path: &Path) -> String {
    if ogive::is_demo(path) {
        return "ogive-demo".into();
    }
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    stem.map_or_else(|| "ogive".into(), |stem| stem.to_string_lossy().into_owned())
}

fn template(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).doing(format_args!("reading the template {}", path.display()))
}
