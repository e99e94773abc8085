//! The kinds of objects that have handles.

use crate::acquisition::Acquisition;
use crate::client::ClientObject;
use crate::client_options::ClientOptions;
use crate::credentials::RequestObject;
use crate::diagnosis::DiagnosisObject;
use crate::error::Failure;
use crate::facts::FactsObject;
use crate::inspection::InspectionObject;
use crate::lease::LeaseObject;
use crate::lock::LockObject;
use crate::lock_options::LockOptions;
use crate::page::PageObject;
use crate::proof::Proof;
use crate::stats::StatsObject;

/// The object of a handle.
pub(crate) enum Object {
    Acquisition(Acquisition),
    /// A cancel token is only a flag in the handle table.
    Cancel,
    Client(ClientObject),
    ClientOptions(ClientOptions),
    CredentialsRequest(RequestObject),
    Diagnosis(DiagnosisObject),
    Error(Failure),
    Facts(FactsObject),
    Gate(onelock::FenceGate),
    Inspection(InspectionObject),
    Lease(LeaseObject),
    Lock(LockObject),
    LockOptions(LockOptions),
    Owner(onelock::Owner),
    Page(PageObject),
    Proof(Proof),
    Stats(StatsObject),
}

/// A kind of object, and the opaque type that stands for it in C.
pub(crate) trait Exposed: Sized {
    /// The opaque type.
    type Opaque;
    /// Its name for people.
    const NAME: &'static str;
    /// The object, if it is of this kind.
    fn of(object: &Object) -> Option<&Self>;
    /// The other way round.
    fn into_object(self) -> Object;
}

macro_rules! exposed {
    ($inner:ty, $variant:ident, $opaque:ty, $name:literal) => {
        impl $crate::object::Exposed for $inner {
            type Opaque = $opaque;
            const NAME: &'static str = $name;
            fn of(object: &$crate::object::Object) -> Option<&Self> {
                match object {
                    $crate::object::Object::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
            fn into_object(self) -> $crate::object::Object {
                $crate::object::Object::$variant(self)
            }
        }
    };
}
pub(crate) use exposed;
