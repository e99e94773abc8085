//! `onelock inspect`: who holds a lock, and who waits for it.

use onelock::{Inspection, Kind};

use crate::arguments::Inspect;
use crate::status::{Failure, Status};
use crate::{print, server, show};

pub(crate) fn inspect(options: &Inspect) -> Result<Status, Failure> {
    let name = options.name.as_encoded_bytes();
    let found = server::client(&options.server)?.inspect(name)?;
    let Some(found) = found else {
        print(if options.json { "null\n" } else { "nobody holds it\n" })?;
        return Ok(Status::Nothing);
    };
    if options.json {
        print(&show::json_line(&show::json(name, &found)))?;
    } else {
        print(&sheet(name, &found))?;
    }
    Ok(Status::Done)
}

/// A lock, line by line.
pub(crate) fn sheet(name: &[u8], found: &Inspection) -> String {
    let mut lines = vec![
        ("name", show::name(name)),
        ("kind", found.kind.as_str().to_owned()),
        ("client", found.origin.as_str().to_owned()),
    ];
    if let Some(owner) = &found.owner {
        lines.push(("label", show::text(&owner.label)));
        lines.push(("process", owner.pid.to_string()));
        lines.push(("host", show::text(&owner.host)));
        lines.push(("held for", show::optional(show::held_for(Some(owner)))));
    }
    if let Some(holder) = &found.foreign_holder {
        lines.push(("holder", show::text(holder)));
    }
    if found.kind == Kind::Read && found.hold_count > 1 {
        let count = found.hold_count;
        lines.push((
            "readers",
            match found.owner {
                Some(_) => format!("{count}: this one, whose lease ends last, and {} more", count - 1),
                None => count.to_string(),
            },
        ));
    } else if found.hold_count == 0 {
        lines.push(("state", "released; it stays taken for the rest of its min_hold".to_owned()));
    } else {
        lines.push(("hold count", found.hold_count.to_string()));
    }
    lines.push(("ttl left", show::optional(found.ttl_left)));
    lines.push(("token", found.fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string())));
    if let (Some(permits), Some(free)) = (found.permits, found.free) {
        lines.push(("permits", format!("{permits}, {free} free")));
    }
    if let Some(waiting) = found.waiting {
        lines.push(("waiting", waiting.to_string()));
    }
    lines.extend(found.waiters.iter().map(|waiter| ("waiter", show::waiter(waiter))));
    lines.into_iter().fold(String::new(), |sheet, (title, value)| format!("{sheet}{title:10}  {value}\n"))
}
