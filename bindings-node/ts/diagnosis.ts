// What a look at the servers found.

import { codeOf, type ErrorCode } from './errors'
import type { NativeDiagnosis } from './native'
import type { Grade } from './options'

/**
 * How a step ended, from harmless to grave: it could not be tried; it is as it should be; it is worth knowing; locks can be
 * taken, but something endangers or delays them; locks cannot be taken.
 */
export type Severity = 'skipped' | 'passed' | 'remark' | 'warning' | 'failed'

/** One step of a {@link Diagnosis}. */
export interface Finding {
  /** The server, without secrets; empty for what concerns all of them. */
  server: string
  /**
   * What was tried: `name`, `tcp`, `tls`, `protocol`, `user`, `database`, `role`, `version`, `persistence`, `eviction`,
   * `replicas`, `clock`, `round trip`, `proxy`, `permission`, `sentinel`, `slots`, `notify`, `quarantine`, `quorum`,
   * `clocks`, `fencing`.
   */
  step: string
  /** How it ended. */
  severity: Severity
  /** What was found, a sentence for people. */
  detail: string
  /** What to do about it; empty where nothing is to be done. */
  todo: string
  /** The code of the error that a call would end with, for what failed; else `null`. */
  error: ErrorCode | null
  /** What was measured, by names that end with the unit, such as `median_us`. */
  measured: Record<string, number>
}

/** What a look at the servers found, from {@link Client.diagnose}. */
export interface Diagnosis {
  /** The gravest severity among the findings. */
  severity: Severity
  /** The grade of fencing tokens there; `None` if that could not be found out, and without fencing. */
  grade: Grade
  /**
   * The steps, server by server, in the order in which they were tried. After one that failed the rest of that server's
   * are missing.
   */
  findings: Finding[]
}

/** What the native module found, for programs. */
export function diagnosisOf(found: NativeDiagnosis | null): Diagnosis {
  const findings = (found?.findings ?? []).map(({ severity, error, ...finding }) => {
    return { ...finding, severity: severity as Severity, error: error === undefined ? null : codeOf(error) }
  })
  return { severity: (found?.severity ?? 'skipped') as Severity, grade: (found?.grade ?? 'None') as Grade, findings }
}
