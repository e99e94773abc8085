//! How an operation is sent: by a plain command where one will do, else by a script's hash, else by its text.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::request::{Form, is_plain};
use super::{refusal, reply};
use crate::machine::{Op, Outcome};

/// Which form comes first, and which one after it.
#[derive(Default)]
pub(crate) struct Forms {
    /// The last lock for which a plain command would have done was taken. So may be the next one, and only a script says by
    /// whom and for how long: then a plain command first would be one request more.
    found_taken: AtomicBool,
}

impl Forms {
    /// How an operation is sent first.
    pub(crate) fn first(&self, op: &Op) -> Form {
        if is_plain(op) && !self.found_taken.load(Ordering::Relaxed) { Form::Plain } else { Form::Sha }
    }

    /// How it has to be sent again, if its answer calls for that.
    pub(crate) fn next(&self, op: &Op, form: Form, outcome: &Outcome<Value>) -> Option<Form> {
        let Outcome::Applied(value) = outcome else { return None };
        match form {
            // refused, for whatever reason, and so nothing was taken: the script looks
            Form::Plain if *value != Value::Okay => {
                self.found_taken.store(true, Ordering::Relaxed);
                Some(Form::Sha)
            }
            Form::Sha if refusal::is_unknown_script(value) => Some(Form::Text),
            Form::Sha | Form::Text if is_plain(op) && reply::is_grant(value) => {
                self.found_taken.store(false, Ordering::Relaxed);
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

    #[test]
    fn a_plain_command_comes_first_until_it_finds_a_lock_taken() {
        let acquire = |fence_ttl_ms| {
            let claim = Claim { kind: Kind::Mutex, key: b"k"[..].into(), token: "t".into() };
            Op::Acquire { claim, ttl_ms: 5, fence_ttl_ms, info: None }
        };
        let (plain, fenced) = (acquire(None), acquire(Some(9)));
        let (applied, forms) = (Outcome::Applied, Forms::default());
        assert_eq!((forms.first(&plain), forms.first(&fenced)), (Form::Plain, Form::Sha));
        assert_eq!(forms.next(&plain, Form::Plain, &applied(Value::Okay)), None);
        assert_eq!(forms.next(&plain, Form::Plain, &applied(Value::Nil)), Some(Form::Sha));
        assert_eq!(forms.first(&plain), Form::Sha);
        let denied = Value::Array([5, 2, 100, 1].map(Value::Int).to_vec());
        assert_eq!(forms.next(&plain, Form::Sha, &applied(denied)), None);
        assert_eq!(forms.first(&plain), Form::Sha, "still taken");
        let granted = Value::Array([5, 0, 0].map(Value::Int).to_vec());
        assert_eq!(forms.next(&plain, Form::Sha, &applied(granted)), None);
        assert_eq!(forms.first(&plain), Form::Plain);
    }
}
