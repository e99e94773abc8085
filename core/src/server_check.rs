//! The look at the server that comes before grants: whether it is there, and how strong its fencing tokens are.

use std::sync::Arc;

use crate::driver::engine::Engine;
use crate::driver::failures::cause;
use crate::error::{Error, ErrorKind};
use crate::machine::Grade;
use crate::store::{Facts, log_warnings};
use crate::sys::clock;

/// Looks at the server: whether it is there, what breaks locks on it, and whether its fencing tokens are good enough.
pub(crate) async fn check(engine: &Arc<Engine>) -> Result<Facts, Error> {
    let until = clock::now() + engine.options.connect_timeout + engine.options.request_timeout;
    let facts = engine.store.facts(until).await.map_err(|failure| {
        let found = match failure.kind {
            ErrorKind::Unavailable => "the server cannot be reached",
            ErrorKind::SystemLimit => "this machine has no room for a connection",
            _ => "the server did not answer as it should",
        };
        Error::new(failure.kind, "connect", found).because(cause(engine, &failure))
    })?;
    let facts = log_warnings(facts, &engine.options.accepted_warnings);
    let grade = if engine.options.fencing { facts.grade } else { Grade::None };
    let wanted = engine.options.min_fencing_grade;
    if grade < wanted {
        let detail = format!(
            "fencing tokens of this server are of grade {}, {} was demanded; {}",
            grade.as_str(),
            wanted.as_str(),
            if facts.warnings.is_empty() { "choose another server".to_owned() } else { facts.warnings.join("; ") }
        );
        return Err(Error::new(ErrorKind::Unsupported, "connect", detail));
    }
    engine.set_grade(grade);
    tracing::info!(grade = grade.as_str(), "onelock: connected to {} at {}", facts.server, engine.store.address());
    Ok(Facts { grade, ..facts })
}

/// Before a client that was not connected grants anything: looks at the server, if a fencing grade is demanded; else
/// does so in the background, once.
pub(crate) async fn check_once(engine: &Arc<Engine>) -> Result<(), Error> {
    if engine.is_checked() {
        return Ok(());
    }
    if engine.options.min_fencing_grade == Grade::None {
        check_later(engine);
        return Ok(());
    }
    check(engine).await.map(|_| ())
}

/// Looks at the server in the background, once per engine.
pub(crate) fn check_later(engine: &Arc<Engine>) {
    if engine.begin_check() {
        let worker = engine.clone();
        engine.runtime.spawn(async move {
            if let Err(error) = check(&worker).await {
                tracing::debug!(%error, "the server was not looked at");
                // also what does not pass by itself may be put right meanwhile
                worker.check_failed();
            }
        });
    }
}
