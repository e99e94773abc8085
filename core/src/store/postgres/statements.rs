//! The statements. Each stands in a file of its own.

/// The texts of all statements on one table.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) table: String,
    pub(super) hello: String,
    pub(super) acquire: String,
    pub(super) renew: String,
    pub(super) hold: String,
    pub(super) release: String,
    pub(super) retain: String,
    pub(super) force: String,
    pub(super) attach: String,
    pub(super) inspect: String,
    pub(super) scan: String,
    pub(super) mark: String,
    pub(super) purge: String,
    pub(super) facts: String,
    pub(super) vote: String,
    pub(super) write_back: String,
    pub(super) run: String,
}

impl Statements {
    pub(super) fn on(table: &str) -> Statements {
        // the remarks at the beginning are for readers
        let text = |file: &str| {
            let lines = file.lines().filter(|line| !line.starts_with("--")).map(str::trim);
            lines.collect::<Vec<_>>().join(" ").replace("{table}", table)
        };
        Statements {
            table: text(include_str!("sql/table.sql")),
            hello: text(include_str!("sql/hello.sql")),
            acquire: text(include_str!("sql/acquire.sql")),
            renew: text(include_str!("sql/renew.sql")),
            hold: text(include_str!("sql/hold.sql")),
            release: text(include_str!("sql/release.sql")),
            retain: text(include_str!("sql/retain.sql")),
            force: text(include_str!("sql/force.sql")),
            attach: text(include_str!("sql/attach.sql")),
            inspect: text(include_str!("sql/inspect.sql")),
            scan: text(include_str!("sql/scan.sql")),
            mark: text(include_str!("sql/mark.sql")),
            purge: text(include_str!("sql/purge.sql")),
            facts: text(include_str!("sql/facts.sql")),
            vote: text(include_str!("sql/vote.sql")),
            write_back: text(include_str!("sql/write_back.sql")),
            run: text(include_str!("sql/run.sql")),
        }
    }
}
