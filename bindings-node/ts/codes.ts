// What the numbers of the native module mean. `src/records.rs` and `src/data.rs` write them.

/** Numbers in one record: what it is about, what it is, two values. */
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
export const SAID = 10
export const ASKED = 11
export const UNASKED = 12

/** `wait` of an acquire. */
export const FOR_EVER = -1
export const ONE_TRY = -2

export const PLAIN = 0
export const REENTRANT = 1

/**
 * Why a lease ended without being released.
 *
 * - `expired`: its deadline passed without a confirmed renewal
 * - `taken`: the server no longer knows it: deleted, evicted, forced, or lost in a restart
 * - `max_hold`: the option `maxHold` was reached
 * - `clock_anomaly`: the server's clock jumped by more than the drift allowance
 * - `closed`: the client was closed while the lease was held, and gave it back
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
 * What a release found. None of these is an error: after each the lock is not held.
 *
 * - `released`: it was held until now, and the server has taken it back
 * - `already_expired`: it had ended before: expired, deleted, or taken by force. Somebody else may have worked meanwhile
 * - `already_released`: this lease was released, detached or closed before. Nothing was sent
 * - `unconfirmed`: it is not held any more, but no server confirmed it in time; clean-up goes on in the background
 */
export type Release = 'released' | 'already_expired' | 'already_released' | 'unconfirmed'

const RELEASES = ['released', 'already_expired', 'already_released', 'unconfirmed'] as const

export function releaseOf(code: number): Release {
  return RELEASES[code] ?? 'unconfirmed'
}
