/**
 * A distributed lock on Redis and Valkey: fencing tokens, renewal that a blocked event loop does not stop, loss as an
 * `AbortSignal`, waiting without polling.
 *
 * ```ts
 * import { Client } from 'onelock'
 *
 * const client = await Client.connect('redis://localhost')
 * await using lease = await client.lock('orders:42').acquire({ timeout: 5_000 })
 * ```
 *
 * Client -> Lock -> Lease: a lock is a description, a lease is one granted hold of it.
 *
 * @packageDocumentation
 */

import './polyfill'

export type {
  Address,
  Durations,
  Facts,
  Holder,
  Inspection,
  LockEntry,
  LockPage,
  Origin,
  Stats,
  Waiter,
} from './client'
export { Client } from './client'
export type { Kind, LossReason, Release } from './codes'
export type { Diagnosis, Finding, Severity } from './diagnosis'
export type { ErrorCode } from './errors'
export {
  AuthenticationFailedError,
  ClientClosedError,
  InternalError,
  InvalidArgumentError,
  LeaseForkedError,
  LockBusyError,
  LockCancelledError,
  LockLostError,
  LockNotAcquiredError,
  LockNotHeldError,
  LockTimeoutError,
  NoQuorumError,
  NotPermittedError,
  OnelockError,
  PermitsMismatchError,
  ServerReadOnlyError,
  ServerRefusedError,
  ServerUnavailableError,
  SystemLimitError,
  UnsupportedError,
  WouldDeadlockError,
  WrongKindError,
} from './errors'
export { FENCE_GUARD_SCRIPT, FenceGate } from './fence'
export type { LeaseEvents, LeaseKind } from './lease'
export { Lease } from './lease'
export type { Body } from './lock'
export { Lock } from './lock'
export type { Logger, LogLevel } from './log'
export { setLogger } from './log'
export { MultiLock } from './multi_lock'
export type {
  AcquireOptions,
  ClientOptions,
  Credentials,
  CredentialsProvider,
  ForceReleaseOptions,
  Grade,
  LeaseOptions,
  ListOptions,
  LockName,
  LockOptions,
  Notify,
  SemaphoreOptions,
} from './options'
export { Owner } from './options'
export { RwLock } from './rw_lock'
export type { PermitOptions, Permits } from './semaphore'
export { Semaphore } from './semaphore'
export { releaseOnSignal } from './signals'
export { VERSION as version } from './version'
