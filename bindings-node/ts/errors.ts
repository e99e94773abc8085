// The error classes: one for each row of the project's table of errors.

import type { LossReason } from './codes'
import { type Failure, native } from './native'

/** The brand of an error object: its kind and its bases. The same in every copy of this package. */
const BRAND = Symbol.for('onelock.error')

/** The stable codes of errors. */
export type ErrorCode =
  | 'ERR_ONELOCK_BUSY'
  | 'ERR_ONELOCK_TIMEOUT'
  | 'ERR_ONELOCK_CANCELLED'
  | 'ERR_ONELOCK_LOST'
  | 'ERR_ONELOCK_NOT_HELD'
  | 'ERR_ONELOCK_UNAVAILABLE'
  | 'ERR_ONELOCK_NO_QUORUM'
  | 'ERR_ONELOCK_AUTH_FAILED'
  | 'ERR_ONELOCK_NOT_PERMITTED'
  | 'ERR_ONELOCK_READ_ONLY'
  | 'ERR_ONELOCK_SERVER_REFUSED'
  | 'ERR_ONELOCK_WRONG_KIND'
  | 'ERR_ONELOCK_INVALID_ARGUMENT'
  | 'ERR_ONELOCK_UNSUPPORTED'
  | 'ERR_ONELOCK_PERMITS_MISMATCH'
  | 'ERR_ONELOCK_CLOSED'
  | 'ERR_ONELOCK_FORKED'
  | 'ERR_ONELOCK_SYSTEM_LIMIT'
  | 'ERR_ONELOCK_INTERNAL'

interface Branded {
  readonly [BRAND]?: readonly string[]
}

/**
 * Every error of this package. Tell errors apart by `code`, or by their classes with `instanceof`, which also holds
 * when two copies of the package are loaded.
 *
 * The message names the lock, the call, what was found and what to do. It never contains a password or a token.
 */
export class OnelockError extends Error {
  /** The stable code of this kind of error, such as `ERR_ONELOCK_TIMEOUT`. */
  readonly code: ErrorCode
  /** The name of the kind, the same in every language: `Timeout`. */
  readonly kind: string
  /** The name of the lock, unprintable bytes escaped; `null` when the error concerns no lock. */
  readonly lock: string | null
  /** The call that failed, in a few words: `acquire`, `extend`, `connect` ... */
  readonly tried: string
  /** What was found, without the name of the lock and the hint. */
  readonly detail: string
  /** The answer of each server; empty when no server was at fault. */
  readonly causes: readonly string[]
  /** Whether the same call may succeed later, without any change. */
  readonly retryable: boolean

  /** @internal */
  constructor(failure: Failure) {
    super(failure.message)
    const row = TABLE.get(failure.kind)
    this.name = new.target.name
    this.kind = failure.kind
    this.code = codeOf(failure.kind)
    this.lock = failure.lock ?? null
    this.tried = failure.tried
    this.detail = failure.detail
    this.causes = failure.causes
    this.retryable = row?.retryable ?? false
    const brands = ['OnelockError', failure.kind]
    if (row?.notAcquired) brands.push('NotAcquired')
    Object.defineProperty(this, BRAND, { value: brands })
  }

  /** @internal */
  static readonly [BRAND]: readonly string[] = ['OnelockError']

  /** Whether an object is an error of this class, also from another copy of this package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // a derived class has no brand of its own, and is an ordinary class
    const own = Object.getOwnPropertyDescriptor(this, BRAND)?.value as readonly string[] | undefined
    if (own === undefined) return Function.prototype[Symbol.hasInstance].call(this, value)
    if (typeof value !== 'object' || value === null) return false
    const brands = (value as Branded)[BRAND]
    return Array.isArray(brands) && brands.includes(own[0]!)
  }
}

/** The lock was not acquired, but nothing failed: it was busy, or the wait ended. */
export class LockNotAcquiredError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['NotAcquired']
}

/** A single try was refused: the lock is held. */
export class LockBusyError extends LockNotAcquiredError {
  /** @internal */
  static override readonly [BRAND] = ['Busy']
}

/** The timeout passed while the lock was held. */
export class LockTimeoutError extends LockNotAcquiredError {
  /** @internal */
  static override readonly [BRAND] = ['Timeout']
}

/** The caller stopped waiting. Waiting that is stopped by an `AbortSignal` rejects with the signal's own reason instead. */
export class LockCancelledError extends LockNotAcquiredError {
  /** @internal */
  static override readonly [BRAND] = ['Cancelled']
}

/** The lease ended without a release: the lock may have another holder now. The reason of `lease.signal`. */
export class LockLostError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Lost']
  /** Why it was lost; `null` when it is not known here. */
  readonly reason: LossReason | null

  /** @internal */
  constructor(failure: Failure) {
    super(failure)
    this.reason = (failure.reason as LossReason | undefined) ?? null
  }
}

/** The lease was released or detached before. */
export class LockNotHeldError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['NotHeld']
}

/** No server could be reached in time. */
export class ServerUnavailableError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Unavailable']
}

/** Too few of several independent servers answered in time. */
export class NoQuorumError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['NoQuorum']
}

/** User name or password were refused. */
export class AuthenticationFailedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['AuthFailed']
}

/** The user lacks the permission for a command or a key. */
export class NotPermittedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['NotPermitted']
}

/** The server is a replica. */
export class ServerReadOnlyError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['ReadOnly']
}

/** The server is up but refuses to write: out of memory, failing to persist, loading, running a long script. */
export class ServerRefusedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['ServerRefused']
}

/** The key is another kind of lock, or not a lock. */
export class WrongKindError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['WrongKind']
}

/** An argument was refused before any I/O. */
export class InvalidArgumentError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['InvalidArgument']
}

/** The store cannot do what was asked. */
export class UnsupportedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Unsupported']
}

/** The owner of a read lease asks for the write lock of the same name: it would wait for itself. */
export class WouldDeadlockError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['WouldDeadlock']
}

/** A semaphore has another number of permits than was said, or none is set. */
export class PermitsMismatchError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['PermitsMismatch']
}

/** The client was closed. */
export class ClientClosedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Closed']
}

/** The lease belongs to the parent process. */
export class LeaseForkedError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Forked']
}

/** The machine has no thread, file descriptor or memory left; the same call may succeed later. */
export class SystemLimitError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['SystemLimit']
}

/** A defect of this library. */
export class InternalError extends OnelockError {
  /** @internal */
  static override readonly [BRAND] = ['Internal']
}

type Class = new (failure: Failure) => OnelockError

const CLASSES: Record<string, Class> = {
  Busy: LockBusyError,
  Timeout: LockTimeoutError,
  Cancelled: LockCancelledError,
  Lost: LockLostError,
  NotHeld: LockNotHeldError,
  Unavailable: ServerUnavailableError,
  NoQuorum: NoQuorumError,
  AuthFailed: AuthenticationFailedError,
  NotPermitted: NotPermittedError,
  ReadOnly: ServerReadOnlyError,
  ServerRefused: ServerRefusedError,
  WrongKind: WrongKindError,
  InvalidArgument: InvalidArgumentError,
  Unsupported: UnsupportedError,
  WouldDeadlock: WouldDeadlockError,
  PermitsMismatch: PermitsMismatchError,
  Closed: ClientClosedError,
  Forked: LeaseForkedError,
  SystemLimit: SystemLimitError,
  Internal: InternalError,
}

const TABLE = new Map(native.kinds().map((row) => [row.kind, row]))

/** The code of a kind of error. */
export function codeOf(kind: string): ErrorCode {
  const words = kind.replace(/([a-z])([A-Z])/g, '$1_$2').toUpperCase()
  return `ERR_ONELOCK_${words}` as ErrorCode
}

/** The error object for a failure of the native module. */
export function toError(failure: Failure | null): OnelockError {
  const told = failure ?? broken('an error was told, but not which')
  return new (CLASSES[told.kind] ?? OnelockError)(told)
}

function broken(detail: string): Failure {
  return worded('Internal', 'call the native module', detail, undefined)
}

/** A failure that TypeScript detects, worded like those of the core. */
export function worded(kind: string, tried: string, detail: string, lock: string | undefined): Failure {
  const what = lock === undefined ? tried : `${tried} "${lock}"`
  const message = `${what}: ${detail} (${kind}: ${TABLE.get(kind)?.todo ?? ''})`
  return { kind, message, tried, detail, causes: [], ...(lock === undefined ? {} : { lock }) }
}

/** An argument is wrong. */
export function invalid(tried: string, detail: string, lock?: string): InvalidArgumentError {
  return new InvalidArgumentError(worded('InvalidArgument', tried, detail, lock))
}
