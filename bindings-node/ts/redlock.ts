/**
 * The class and the methods of the package `redlock` (version 5) over this package's locks: a migration is one import.
 *
 * ```ts
 * import Redlock from 'onelock/redlock' // was: from 'redlock'
 *
 * const redlock = new Redlock([new Redis('redis://localhost')])
 * await redlock.using(['orders:42'], 5_000, async (signal) => {
 *   await charge(order)
 *   if (signal.aborted) throw signal.error
 * })
 * ```
 *
 * Both packages respect each other's locks on one server, so processes can be moved one by one. Differences:
 *
 * - Waiting does not poll: `retryCount`, `retryDelay` and `retryJitter` give the longest wait, and a release wakes the waiter.
 * - Of the clients only their options are read; this package makes its own connections. An object that is not from ioredis,
 *   and every option that cannot be taken over, is refused by name.
 * - `using` extends every third of the duration, from a thread that a blocked event loop does not stop;
 *   `automaticExtensionThreshold` is checked and otherwise ignored.
 * - `extend` never shortens a lock.
 * - `release` and `extend` of an expired lock fail at once, without retries.
 * - Several resources are locked one after the other, in one order for all programs, not by one script; `value` then has a
 *   token for each. Custom scripts are refused.
 *
 * @packageDocumentation
 */

import './polyfill'

import { EventEmitter } from 'node:events'
import { Client } from './client'
import { invalid, LockLostError, LockNotAcquiredError, OnelockError, UnsupportedError, worded } from './errors'
import { type IoRedis, placeOf } from './ioredis'
import type { Lease } from './lease'
import type { Lock as CoreLock } from './lock'
import type { MultiLock } from './multi_lock'
import type { ClientOptions, LockName, LockOptions } from './options'
import { beforeReleaseAll } from './pump'

export type { IoRedis } from './ioredis'

/** The votes of the clients. Here they are one store and vote together. */
export interface ExecutionStats {
  /** The number of clients. */
  readonly membershipSize: number
  /** The number that must agree. */
  readonly quorumSize: number
  /** The votes for the operation. */
  readonly votesFor: Set<IoRedis>
  /** The votes against it, and their reasons. */
  readonly votesAgainst: Map<IoRedis, Error>
}

/** The result of an operation that succeeded. */
export interface ExecutionResult {
  /** One entry: the attempt that succeeded. */
  attempts: readonly Promise<ExecutionStats>[]
}

/** Settings of one operation. */
export interface Settings {
  /** The share of the duration by which clocks may run apart. Default: 0.01. */
  readonly driftFactor: number
  /** How many retries, -1 for no limit. Multiplied by the delay and its jitter it gives the longest wait. Default: 10. */
  readonly retryCount: number
  /** Milliseconds between two retries. Default: 200. */
  readonly retryDelay: number
  /** Milliseconds by which the delay varies. Default: 100. */
  readonly retryJitter: number
  /** Checked as in `redlock`: at least 100 less than a duration given to `using`. Default: 500. */
  readonly automaticExtensionThreshold: number
}

/** Settings of a {@link Redlock}. */
export interface RedlockSettings extends Settings {
  /** Options of this package's client, in addition to those of the ioredis objects: `label`, `caFile` ... */
  readonly client: ClientOptions
}

/** A signal that aborts when the lock is lost. */
export interface RedlockAbortSignal extends AbortSignal {
  /** Why the lock was lost; undefined before. */
  error?: Error
}

const DEFAULTS: Settings = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
})

/** The resource has another holder, or none any more. */
export class ResourceLockedError extends Error {
  /** `ResourceLockedError` */
  override readonly name = 'ResourceLockedError'
}

/** An operation failed. Its `cause` is this package's own error, if there is one. */
export class ExecutionError extends Error {
  /** `ExecutionError` */
  override readonly name = 'ExecutionError'
  /** At most one entry: the attempt that failed. */
  readonly attempts: readonly Promise<ExecutionStats>[]

  constructor(message: string, attempts: readonly Promise<ExecutionStats>[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.attempts = attempts
  }
}

/**
 * The leases of {@link Redlock.acquire}. They last for their duration, even if they are collected, and beyond the end of
 * this process.
 */
const kept = new Set<Lease>()

function keep(lease: Lease): void {
  if (kept.size === 0 && !watching) {
    watching = true
    beforeReleaseAll(() => [...kept].forEach(leave))
  }
  kept.add(lease)
  lease.once('lost', () => kept.delete(lease))
}

let watching = false

/** Drops a lease without releasing the lock. */
function leave(lease: Lease): void {
  kept.delete(lease)
  try {
    lease.detach()
  } catch {
    // it has ended already
  }
}

/** Locked resources. */
export class Lock {
  /** The Redlock that acquired it. */
  readonly redlock: Redlock
  /** The locked resources. */
  readonly resources: LockName[]
  /**
   * The fencing token as text, which is unique for the resource; of several resources one for each, with a comma between
   * them. The token of the hold stays secret.
   */
  readonly value: string
  /** One entry: the attempt that acquired or extended it. */
  readonly attempts: readonly Promise<ExecutionStats>[]
  /** The end of its validity on the clock of `Date.now()`; 0 when it was released or replaced. */
  expiration: number
  /** The lease of this package, with its fencing token and `held`. */
  readonly lease: Lease

  /** @internal */
  constructor(redlock: Redlock, resources: LockName[], lease: Lease, attempts: readonly Promise<ExecutionStats>[]) {
    this.redlock = redlock
    this.resources = resources
    this.lease = lease
    this.value = [...lease.fencingTokens.values()].join(',')
    this.attempts = attempts
    this.expiration = Date.now() + Math.floor(lease.remaining)
  }

  /** Releases it, as {@link Redlock.release}. */
  async release(): Promise<ExecutionResult> {
    return await this.redlock.release(this)
  }

  /** Extends it, as {@link Redlock.extend}. */
  async extend(duration: number): Promise<Lock> {
    return await this.redlock.extend(this, duration)
  }
}

/** Locks on the server that ioredis objects connect to. Emits `error` for every operation that does not succeed. */
export class Redlock extends EventEmitter {
  /** The ioredis objects that it was made with. */
  readonly clients: Set<IoRedis>
  /** Settings of operations that have none of their own. */
  readonly settings: Settings
  readonly #client: Client

  /**
   * @param clients one ioredis object, or one for each of several independent servers
   * @throws {InvalidArgumentError} for an object that is not from ioredis
   * @throws {UnsupportedError} for options of the clients that cannot be taken over, and for custom scripts
   */
  constructor(clients: Iterable<IoRedis>, settings: Partial<RedlockSettings> = {}, scripts: object = {}) {
    super()
    // operations reject with their errors; without a listener an event of this name would end the process
    this.on('error', () => {})
    this.clients = new Set(clients)
    if (this.clients.size === 0) {
      throw invalid('make a Redlock', 'Redlock must be instantiated with at least one redis client.')
    }
    if (Object.keys(scripts).length > 0) {
      throw new UnsupportedError(worded('Unsupported', 'make a Redlock', 'custom scripts cannot be used', undefined))
    }
    const { client = {}, ...own } = settings
    this.settings = merged(DEFAULTS, own)
    this.#client = connected(this.clients, { ...client, driftFactor: this.settings.driftFactor })
  }

  /** Closes the connections of this package and of the clients. Acquired locks last until they expire. */
  async quit(): Promise<void> {
    for (const lease of kept) if (owners.get(lease) === this) leave(lease)
    await Promise.all([this.#client.close(), ...[...this.clients].map((client) => client.quit?.())])
  }

  /**
   * Locks the resources for `duration` milliseconds, all or none. The lock is not extended automatically; it lasts until it is released
   * or expires.
   *
   * @throws {ExecutionError} when it was locked for the whole wait, or no server could be asked
   */
  async acquire(resources: LockName[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    const lock = this.#describe('acquire', resources, duration, { autoRenew: false })
    const timeout = patience(merged(this.settings, settings))
    try {
      const lease = await lock.acquire({ timeout })
      owners.set(lease, this)
      keep(lease)
      return new Lock(this, [...resources], lease, this.#inFavour())
    } catch (error) {
      throw this.#failed(error, resources.length)
    }
  }

  /**
   * Releases a lock.
   *
   * @throws {ExecutionError} when it was not held any more, or no server confirmed it in time
   */
  async release(lock: Lock, _settings?: Partial<Settings>): Promise<ExecutionResult> {
    const { lease, resources } = own(lock, 'release')
    lock.expiration = 0
    kept.delete(lease)
    const found = await lease.release()
    if (found === 'released') return { attempts: this.#inFavour() }
    if (found !== 'unconfirmed') throw this.#against(applied(resources.length))
    throw this.#against(new Error('no server confirmed the release in time; it goes on in the background'))
  }

  /**
   * Sets the end of a lock to `duration` milliseconds from now, unless it ends later already. The returned lock replaces
   * the given one.
   *
   * @throws {ExecutionError} when it is not held any more, or no server answered
   */
  async extend(existing: Lock, duration: number, _settings?: Partial<Settings>): Promise<Lock> {
    const { lease, resources } = own(existing, 'extend')
    whole('extend', duration)
    if (existing.expiration < Date.now()) throw new ExecutionError('Cannot extend an already-expired lock.', [])
    try {
      await lease.extend(duration)
    } catch (error) {
      throw this.#failed(error, resources.length)
    }
    existing.expiration = 0
    return new Lock(this, resources, lease, this.#inFavour())
  }

  /**
   * Runs the routine while the resources are locked, extends the lock meanwhile, and releases it at the end. The signal
   * aborts when the lock is lost; `signal.error` says why.
   *
   * @throws what the routine throws; {@link ExecutionError} when the lock was not acquired, or was lost meanwhile
   */
  using<T>(
    resources: LockName[],
    duration: number,
    settings: Partial<Settings>,
    routine?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>
  using<T>(resources: LockName[], duration: number, routine: (signal: RedlockAbortSignal) => Promise<T>): Promise<T>
  async using<T>(
    resources: LockName[],
    duration: number,
    first: Partial<Settings> | ((signal: RedlockAbortSignal) => Promise<T>),
    second?: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T> {
    const [given, routine] = typeof first === 'function' ? [undefined, first] : [first, second]
    if (typeof first === 'function' && second !== undefined) {
      throw invalid('using', 'the settings come before the routine: using(resources, duration, settings, routine)')
    }
    if (typeof routine !== 'function')
      throw invalid('using', 'the routine must be a function such as async (signal) => ...')
    const lock = this.#describe('using', resources, duration, { autoRenew: true })
    const settings = merged(this.settings, given)
    if (settings.automaticExtensionThreshold > duration - 100) {
      const detail = 'A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.'
      throw invalid('using', detail)
    }
    let told: ExecutionError | undefined
    let failed = false
    const lost = (reason: unknown) => {
      told ??= this.#failed(reason, resources.length) as ExecutionError
      return told
    }
    try {
      return await lock.using({ timeout: patience(settings) }, async (signal) => {
        const get = () => (signal.aborted ? lost(signal.reason) : undefined)
        Object.defineProperty(signal, 'error', { get, configurable: true, enumerable: true })
        try {
          return await routine(signal as RedlockAbortSignal)
        } catch (error) {
          failed = true
          throw error
        }
      })
    } catch (error) {
      if (failed) throw error
      throw error instanceof LockLostError ? lost(error) : this.#failed(error, resources.length)
    }
  }

  #describe(tried: string, resources: LockName[], duration: number, options: LockOptions): CoreLock | MultiLock {
    if (!Array.isArray(resources)) throw invalid(tried, "the resources must be an array such as ['orders:42']")
    if (resources.length === 0) throw invalid(tried, 'there is no resource to lock')
    const wanted = { ...options, ttl: whole(tried, duration) }
    return resources.length === 1 ? this.#client.lock(resources[0]!, wanted) : this.#client.multiLock(resources, wanted)
  }

  #stats(): ExecutionStats {
    const membershipSize = this.clients.size
    const quorumSize = Math.floor(membershipSize / 2) + 1
    return { membershipSize, quorumSize, votesFor: new Set(), votesAgainst: new Map() }
  }

  #inFavour(): Promise<ExecutionStats>[] {
    return [Promise.resolve({ ...this.#stats(), votesFor: new Set(this.clients) })]
  }

  /** Converts an error of this package to one of an operation. Errors in arguments are not converted. */
  #failed(error: unknown, resources: number): unknown {
    if (error instanceof LockNotAcquiredError || error instanceof LockLostError) {
      return this.#against(applied(resources), error)
    }
    const mistake = !(error instanceof OnelockError) || MISTAKES.includes(error.kind)
    return mistake ? error : this.#against(error, error)
  }

  #against(vote: Error, cause?: unknown): ExecutionError {
    this.emit('error', vote)
    const votesAgainst = new Map([...this.clients].map((client) => [client, vote]))
    const attempts = [Promise.resolve({ ...this.#stats(), votesAgainst })]
    return new ExecutionError('The operation was unable to achieve a quorum during its retry window.', attempts, cause)
  }
}

export { Redlock as default }

const MISTAKES = ['InvalidArgument', 'Unsupported', 'Closed', 'Internal']

/** The Redlock of each kept lease. */
const owners = new WeakMap<Lease, Redlock>()

function applied(resources: number): ResourceLockedError {
  return new ResourceLockedError(`The operation was applied to: 0 of the ${resources} requested resources.`)
}

function connected(clients: Set<IoRedis>, own: ClientOptions): Client {
  const places = [...clients].map((client) => placeOf(client, own))
  const [first, ...others] = places.map(({ options }) => JSON.stringify(options))
  if (others.some((other) => other !== first)) {
    throw invalid('make a Redlock', 'the clients differ in keyPrefix, tls or time limits; they must be alike')
  }
  const { options, label } = places[0]!
  return new Client(
    places.map(({ address }) => address),
    label === undefined ? options : { label, ...options },
  )
}

function merged(base: Settings, given: Partial<Settings> | undefined): Settings {
  const settings: Record<string, number> = { ...base }
  for (const [setting, value] of Object.entries(given ?? {})) {
    if (value === undefined) continue
    if (!Object.hasOwn(DEFAULTS, setting)) {
      throw invalid('read settings', `there is no setting "${setting}"; there are: ${Object.keys(DEFAULTS).join(', ')}`)
    }
    if (typeof value !== 'number' || Number.isNaN(value)) throw invalid('read settings', `${setting} must be a number`)
    settings[setting] = value
  }
  return settings as unknown as Settings
}

/** The longest time that the retries would take. */
function patience({ retryCount, retryDelay, retryJitter }: Settings): number {
  if (retryCount < 0) return Number.POSITIVE_INFINITY
  return retryCount === 0 ? 0 : retryCount * Math.max(0, retryDelay + retryJitter)
}

function whole(tried: string, duration: unknown): number {
  if (!Number.isInteger(duration)) throw invalid(tried, 'Duration must be an integer value in milliseconds.')
  return duration as number
}

function own(lock: unknown, tried: string): Lock {
  if (lock instanceof Lock) return lock
  throw invalid(tried, 'the lock must be one that acquire or extend returned')
}
