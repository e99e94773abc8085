// A lock: a description. Cheap and shareable; it holds no state of any hold.

import * as busy from './busy'
import { FOR_EVER, NOTHING, ONE_TRY, PLAIN, REENTRANT } from './codes'
import { invalid } from './errors'
import { type Kind, Lease } from './lease'
import type { NativeClient, Values } from './native'
import { type AcquireOptions, type LockName, Owner, printable, type Waiting, waiting } from './options'
import { granted, pump, session } from './pump'
import { ownerHere, runAs } from './scope'

/** What runs while the lock is held. The signal aborts when the lease is lost. */
export type Body<T> = (signal: AbortSignal, lease: Lease) => Promise<T> | T

/** Who re-enters, for one call. */
interface Entry {
  values: Values | undefined
  owner: string | undefined
}

/**
 * A lock by name, from {@link Client.lock} or {@link Client.reentrantLock}. Says what is wanted; holds nothing. It may be
 * kept, shared and used any number of times.
 */
export class Lock {
  /** The name, as it was given. */
  readonly name: LockName
  /** The kind of lock. */
  readonly kind: Kind
  readonly #client: NativeClient
  readonly #values: Values | undefined
  readonly #reentrant: boolean

  /** @internal */
  constructor(client: NativeClient, kind: Kind, name: LockName, values: Values | undefined) {
    this.#client = client
    this.kind = kind
    this.name = name
    this.#values = values
    this.#reentrant = kind === 'reentrant_lock'
  }

  /**
   * Waits until the lock is held. Uncontended: one round trip.
   *
   * Waiting does not poll: a release wakes the next. It keeps the process alive. The lease is fresh when it is granted;
   * waiting takes nothing off it. A server that cannot be reached is tried again until the timeout is used up, or for
   * 30 s (`unreachableLimit`) without one.
   *
   * ```ts
   * const lease = await client.lock('orders:42').acquire({ timeout: 5_000 })
   * ```
   *
   * @throws {LockTimeoutError} when others held it all the time; {@link LockBusyError} for a timeout of 0
   * @throws the reason of `signal`, when that is aborted: then nothing is held
   * @throws {OnelockError} what the server says, and {@link InvalidArgumentError} before any I/O
   */
  async acquire(options?: AcquireOptions): Promise<Lease> {
    const { wait, signal } = waiting(options, 'acquire', () => printable(this.name))
    return granted(await this.#enter(wait, signal, this.#entry())) as Lease
  }

  /**
   * One try: `null` when somebody else holds the lock. One round trip, no waiting.
   *
   * @throws as {@link Lock.acquire}
   */
  async tryAcquire(options?: { signal?: AbortSignal | undefined }): Promise<Lease | null> {
    const shown = () => printable(this.name)
    const { wait, signal } = waiting(options, 'try_acquire', shown)
    if (wait !== FOR_EVER) throw invalid('try_acquire', 'it takes no timeout: it never waits; use acquire', shown())
    return granted(await this.#enter(ONE_TRY, signal, this.#entry()))
  }

  /**
   * Runs `body` while the lock is held, and releases at the end. Waits for the lock as {@link Lock.acquire} does, with
   * its options.
   *
   * The signal aborts when the lease is lost, and the body should stop then: nothing can stop it from outside. The body's
   * own error is never replaced by a release problem; a loss becomes its `cause` if it has none. A body that ended well
   * after the lease was lost makes this reject with {@link LockLostError}.
   *
   * The process is kept alive until the body has ended, also when that waits for nothing but the signal.
   *
   * On a reentrant lock the body is the owner: an acquire of the same lock inside it, through the same client, enters
   * again.
   *
   * ```ts
   * await client.lock('orders:42').using(async (signal, lease) => {
   *   await charge(order, { signal, fence: lease.fencingToken })
   * })
   * ```
   */
  using<T>(body: Body<T>): Promise<T>
  using<T>(options: AcquireOptions, body: Body<T>): Promise<T>
  async using<T>(first: AcquireOptions | Body<T>, second?: Body<T>): Promise<T> {
    const [options, body] = typeof first === 'function' ? [undefined, first] : [first, second]
    if (typeof first === 'function' && second !== undefined) {
      throw invalid('using', 'the options come first: lock.using(options, body)', printable(this.name))
    }
    if (typeof body !== 'function') {
      throw invalid('using', 'the body must be a function such as async (signal, lease) => ...', printable(this.name))
    }
    const { wait, signal } = waiting(options, 'using', () => printable(this.name))
    const entry = this.#entry()
    if (this.#reentrant && entry.owner === undefined) this.#own(entry, new Owner().id)
    const lease = granted(await this.#enter(wait, signal, entry)) as Lease
    busy.begin()
    try {
      return await this.#hold(lease, entry.owner, body)
    } finally {
      busy.end()
    }
  }

  async #hold<T>(lease: Lease, owner: string | undefined, body: Body<T>): Promise<T> {
    const run = () => body(lease.signal, lease)
    let value: T
    try {
      value = await (owner === undefined ? run() : runAs(this.#client, this.#key(), owner, run))
    } catch (error) {
      await lease.release()
      const loss = lease.loss
      if (loss !== null) addCause(error, lease.lossError(loss))
      throw error
    }
    await lease.release()
    // also what only the release found out
    const loss = lease.loss
    if (loss !== null) throw lease.lossError(loss)
    return value
  }

  /**
   * Goes on with a hold that another process gave away with {@link Lease.detach}. One round trip. The lock's ttl counts
   * from here; name, kind and prefix must be those of the lock that was detached.
   *
   * The server exchanges the token of the hold for a new one, so a proof attaches once, however often it arrives. The
   * fencing token stays the same (Redlock: it may be higher). After an error that leaves it open whether the server did
   * it, such as {@link ServerUnavailableError}, the hold is given back if it did.
   *
   * @throws {InvalidArgumentError} for a text that is no such proof
   * @throws {LockLostError} when the hold has ended meanwhile, or somebody has attached with this proof before
   */
  async attach(proof: string): Promise<Lease> {
    if (typeof proof !== 'string') {
      throw invalid('attach', 'the proof must be the text that detach returned', printable(this.name))
    }
    const { values } = this.#entry()
    const begin = (call: number) => session.attach(call, this.#client, this.#number, this.name, proof, values)
    return granted(await pump.call(begin, (_, id, fence) => new Lease(this.name, this.kind, id, fence)))
  }

  /**
   * Whether anybody holds it, this client included. One round trip. When the answer arrives it may be old: to act on it,
   * use {@link Lock.tryAcquire}.
   */
  async isLocked(): Promise<boolean> {
    const begin = (call: number) => session.isLocked(call, this.#client, this.#number, this.name, this.#values)
    return granted(await pump.call(begin, (_, flag) => flag === 1))
  }

  get #number(): number {
    return this.#reentrant ? REENTRANT : PLAIN
  }

  #key(): string {
    return Buffer.from(this.name as string).toString('latin1')
  }

  /** The owner that was given, or that the async context has. */
  #entry(): Entry {
    const entry: Entry = { values: this.#values, owner: this.#values?.owner as string | undefined }
    if (this.#reentrant && entry.owner === undefined) {
      const owner = ownerHere(this.#client, this.#key())
      if (owner !== undefined) this.#own(entry, owner)
    }
    return entry
  }

  #own(entry: Entry, owner: string): void {
    entry.owner = owner
    entry.values = { ...this.#values, owner }
  }

  #enter(wait: number, signal: Waiting['signal'], { values }: Entry) {
    return pump.call(
      (call) => session.acquire(call, this.#client, this.#number, this.name, wait, values),
      (code, id, fence) => (code === NOTHING ? null : new Lease(this.name, this.kind, id, fence)),
      signal,
    )
  }
}

/** Says why a body failed after its lease was lost, if it does not say so itself. */
function addCause(error: unknown, loss: Error): void {
  if (!(error instanceof Error) || error === loss || error.cause !== undefined || !Object.isExtensible(error)) return
  Object.defineProperty(error, 'cause', { value: loss, configurable: true, writable: true, enumerable: false })
}
