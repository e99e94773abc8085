// The codes of the native module. `src/records.rs` and `src/data.rs` write them.

/** How many numbers a record has: subject, code, two values. */
export const RECORD = 4

export const GRANTED = 0
export const NOTHING = 1
export const DONE = 2
export const FLAG = 3
export const RELEASED = 4
export const INSPECTED = 5
export const CHECKED = 6
export const FAILED = 7
export const LOST = 8
export const JEOPARDY = 9
export const LOG_LINE = 10
export const CREDENTIALS_WANTED = 11
export const PROVIDER_DROPPED = 12
export const LISTED = 13
export const PERMITS = 14
export const DIAGNOSED = 15

/** `wait` of an acquire. */
export const FOR_EVER = -1
export const ONE_TRY = -2

/** The kinds of locks. */
export type Kind = 'lock' | 'reentrant_lock' | 'fair_lock' | 'read_lock' | 'write_lock' | 'semaphore'

/** The kinds of locks by their numbers, which are those of the core. */
export const KINDS: Readonly<Record<Kind, number>> = {
  lock: 1,
  reentrant_lock: 2,
  fair_lock: 3,
  read_lock: 4,
  write_lock: 5,
  semaphore: 6,
}

/**
 * Why a lease ended without being released.
 *
 * - `expired`: the deadline passed without a confirmed renewal
 * - `taken`: the key is gone or has another holder: deleted, evicted, force-released, or lost in a restart
 * - `max_hold`: the option `maxHold` was reached
 * - `clock_anomaly`: the server's clock jumped by more than the drift allowance
 * - `closed`: the client was closed while the lease was held, and released it
 */
export type LossReason = 'expired' | 'taken' | 'max_hold' | 'clock_anomaly' | 'closed'

const LOSSES = [null, 'expired', 'taken', 'max_hold', 'clock_anomaly', 'closed'] as const

export function lossOf(code: number): LossReason | null {
  return LOSSES[code] ?? null
}

export function codeOfLoss(loss: LossReason): number {
  return LOSSES.indexOf(loss)
}

/**
 * The outcome of a release. None is an error: after each of them the lease does not hold the lock.
 *
 * - `released`: it was held, and the server has deleted the hold
 * - `already_expired`: it had ended before: expired, deleted, or force-released. There may have been another holder since
 * - `already_released`: this lease was released, detached or closed before. Nothing was sent
 * - `unconfirmed`: it is not held any more, but no server confirmed it in time; the release is retried in the background
 */
export type Release = 'released' | 'already_expired' | 'already_released' | 'unconfirmed'

const RELEASES = ['released', 'already_expired', 'already_released', 'unconfirmed'] as const

export function releaseOf(code: number): Release {
  return RELEASES[code] ?? 'unconfirmed'
}
