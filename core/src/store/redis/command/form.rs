//! Which form of a command is sent: a plain command where one suffices, otherwise the script by its hash, and by its
//! text where the server does not know the hash.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::call::CommandForm;
use super::request::is_plain;
use super::{reply, server_error};
use crate::machine::{Op, Outcome};

/// What came of sending a command once.
pub(crate) trait Exchanged {
    /// How it ended. `None` if no connection took the command.
    fn outcome(&self) -> Option<&Outcome<Value>>;
}

impl<E: Exchanged> Exchanged for Option<E> {
    fn outcome(&self) -> Option<&Outcome<Value>> {
        self.as_ref().and_then(E::outcome)
    }
}

/// Sends an operation once, from a task.
pub(crate) trait FormSender {
    type Exchanged: Exchanged;

    /// Sends `op` in `form`. Its future is as cancel safe as the connection's.
    fn send(&self, op: &Op, form: CommandForm) -> impl Future<Output = Self::Exchanged> + Send;
}

/// Chooses the first form, and the next one after a reply.
#[derive(Default)]
pub(crate) struct CommandForms {
    /// The last lock for which a plain command suffices was taken. The next one may be taken too, and only a script
    /// tells by whom and for how long: a plain command would be one request more.
    last_was_taken: AtomicBool,
}

impl CommandForms {
    /// Sends `op` by `sender`, and again for as long as the reply requires another form. Returns what came of the last one.
    pub(crate) async fn exchange<S: FormSender>(&self, op: &Op, sender: S) -> S::Exchanged {
        let mut form = self.first(op);
        loop {
            let exchanged = sender.send(op, form).await;
            match self.next(op, form, &exchanged) {
                Some(next) => form = next,
                None => return exchanged,
            }
        }
    }

    /// The same for a thread.
    pub(crate) fn exchange_blocking<E: Exchanged>(&self, op: &Op, mut send: impl FnMut(CommandForm) -> E) -> E {
        let mut form = self.first(op);
        loop {
            let exchanged = send(form);
            match self.next(op, form, &exchanged) {
                Some(next) => form = next,
                None => return exchanged,
            }
        }
    }

    /// The form that is sent first.
    fn first(&self, op: &Op) -> CommandForm {
        if is_plain(op) && !self.last_was_taken.load(Ordering::Relaxed) { CommandForm::Plain } else { CommandForm::Sha }
    }

    /// The form to send next, if the reply requires one.
    fn next(&self, op: &Op, form: CommandForm, exchanged: &impl Exchanged) -> Option<CommandForm> {
        let Some(Outcome::Applied(value)) = exchanged.outcome() else { return None };
        match form {
            // refused, for whatever reason, and so nothing was taken: the script finds out why
            CommandForm::Plain if *value != Value::Okay => {
                self.last_was_taken.store(true, Ordering::Relaxed);
                Some(CommandForm::Sha)
            }
            CommandForm::Sha if server_error::is_unknown_script(value) => Some(CommandForm::Text),
            CommandForm::Sha | CommandForm::Text if is_plain(op) && reply::is_grant(value) => {
                self.last_was_taken.store(false, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Claim, Kind};

    impl Exchanged for Outcome<Value> {
        fn outcome(&self) -> Option<&Outcome<Value>> {
            Some(self)
        }
    }

    #[test]
    fn a_plain_command_comes_first_until_it_finds_a_lock_taken() {
        let acquire = |fence_ttl_ms| {
            let claim = Claim { kind: Kind::Mutex, key: b"k"[..].into(), token: "t".into() };
            Op::Acquire { claim, ttl_ms: 5, fence_ttl_ms, info: None }
        };
        let (plain, fenced) = (acquire(None), acquire(Some(9)));
        let (applied, forms) = (Outcome::Applied, CommandForms::default());
        assert_eq!((forms.first(&plain), forms.first(&fenced)), (CommandForm::Plain, CommandForm::Sha));
        assert_eq!(forms.next(&plain, CommandForm::Plain, &applied(Value::Okay)), None);
        assert_eq!(forms.next(&plain, CommandForm::Plain, &applied(Value::Nil)), Some(CommandForm::Sha));
        assert_eq!(forms.first(&plain), CommandForm::Sha);
        let denied = Value::Array([5, 2, 100, 1].map(Value::Int).to_vec());
        assert_eq!(forms.next(&plain, CommandForm::Sha, &applied(denied)), None);
        assert_eq!(forms.first(&plain), CommandForm::Sha, "still taken");
        let granted = Value::Array([5, 0, 0].map(Value::Int).to_vec());
        assert_eq!(forms.next(&plain, CommandForm::Sha, &applied(granted)), None);
        assert_eq!(forms.first(&plain), CommandForm::Plain);
    }
}
