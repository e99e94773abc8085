//! `onelock doctor`: looking at the servers step by step.

use std::fmt::Write as _;

use onelock::{Diagnosis, ErrorKind, Finding, Severity};
use serde_json::{Value, json};

use crate::arguments::Doctor;
use crate::status::{Failure, Status};
use crate::{print, server, show};

const PERMISSION: &str = "permission";

pub(crate) fn doctor(mut options: Doctor) -> Result<Status, Failure> {
    options.server.url = options.address.take().or(options.server.url);
    server::refuse_memory(&options.server)?;
    let client = server::client(&options.server)?;
    let diagnosis = client.diagnose(options.name.as_encoded_bytes())?;
    client.close();
    let shown = if options.json {
        show::json_line(&json(&diagnosis))
    } else {
        let sheet = sheet(&diagnosis, options.verbose);
        let conclusion = conclusion(&diagnosis);
        format!("{sheet}{conclusion}\n")
    };
    print(&shown)?;
    Ok(status(&diagnosis))
}

fn status(diagnosis: &Diagnosis) -> Status {
    match diagnosis.severity() {
        Severity::Failed => diagnosis
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Failed)
            // what all servers are together says more than one of them
            .max_by_key(|finding| finding.server.is_empty())
            .and_then(|finding| finding.error)
            .unwrap_or(ErrorKind::Internal)
            .into(),
        Severity::Warning => Status::Nothing,
        _ => Status::Done,
    }
}

fn conclusion(diagnosis: &Diagnosis) -> &'static str {
    match diagnosis.severity() {
        Severity::Failed => "locks cannot be taken here, or not all of them; see what is marked FAIL",
        Severity::Warning => "locks can be taken; see what is marked !",
        Severity::Remark => "locks can be taken; the notes are worth reading",
        _ => "locks can be taken, and nothing endangers them",
    }
}

const fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Passed => "ok",
        Severity::Remark => "note",
        Severity::Warning => "!",
        Severity::Failed => "FAIL",
        _ => "-",
    }
}

/// The findings for people, server by server.
fn sheet(diagnosis: &Diagnosis, verbose: bool) -> String {
    let mut sheet = String::new();
    let mut server = None;
    let mut counted = None;
    for finding in &diagnosis.findings {
        if server != Some(&finding.server) {
            let title = if finding.server.is_empty() { "together" } else { &finding.server };
            let _ = writeln!(sheet, "{}", show::text(title));
            server = Some(&finding.server);
        }
        if !verbose && is_there(finding) {
            // those that are there count as one line, where the first one stands
            if counted.replace(&finding.server) != Some(&finding.server) {
                let is_of_it = |it: &&Finding| is_there(it) && it.server == finding.server;
                let detail = match diagnosis.findings.iter().filter(is_of_it).count() {
                    1 => "1 is there".to_owned(),
                    number => format!("{number} are there"),
                };
                line(&mut sheet, finding.severity, "permissions", &detail);
            }
            continue;
        }
        line(&mut sheet, finding.severity, finding.step, &finding.detail);
        if !finding.todo.is_empty() {
            line(&mut sheet, Severity::Skipped, "", &format!("-> {}", finding.todo));
        }
    }
    sheet
}

fn is_there(finding: &Finding) -> bool {
    finding.step == PERMISSION && finding.severity == Severity::Passed
}

fn line(sheet: &mut String, severity: Severity, step: &str, detail: &str) {
    let mark = if step.is_empty() { "" } else { mark(severity) };
    let _ = writeln!(sheet, "  {mark:4}  {step:11}  {}", show::text(detail));
}

fn json(diagnosis: &Diagnosis) -> Value {
    let finding = |finding: &Finding| {
        let measured: serde_json::Map<String, Value> =
            finding.measured.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "server": finding.server,
            "step": finding.step,
            "severity": finding.severity.as_str(),
            "detail": finding.detail,
            "todo": finding.todo,
            "error": finding.error.map(ErrorKind::name),
            "measured": measured,
        })
    };
    json!({
        "severity": diagnosis.severity().as_str(),
        "grade": diagnosis.grade.as_str(),
        "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
