// A lock: the description of what to acquire. It has no state of any hold.

import * as busy from './busy'
import { FOR_EVER, KINDS, type Kind, NOTHING, ONE_TRY } from './codes'
import { invalid } from './errors'
import { Lease } from './lease'
import type { NativeClient, Values } from './native'
import { type AcquireOptions, type LockName, Owner, printable, type Waiting, waiting } from './options'
import { bridge, pump, resultOf } from './pump'
import { ownerHere, runAs } from './scope'

/** A function that runs while the lock is held. The signal aborts when the lease is lost. */
export type Body<T> = (signal: AbortSignal, lease: Lease) => Promise<T> | T

/** @internal A lock as a member of several. */
export interface Member {
  readonly client: NativeClient
  readonly kind: number
  readonly name: LockName
  readonly values: Values
  /** Runs a body with its owner. */
  run<T>(body: () => Promise<T> | T): Promise<T>
}

/** A number for each client. */
const clients = new WeakMap<NativeClient, number>()
let counted = 0

/** The owner of one call. */
interface Entry {
  values: Values | undefined
  owner: string | undefined
}

/** The kinds of lock that an owner may acquire again. */
const REENTRANT: ReadonlySet<Kind> = new Set<Kind>(['reentrant_lock', 'read_lock', 'write_lock'])

/**
 * A lock by name, from {@link Client.lock}, {@link Client.reentrantLock}, {@link Client.fairLock} or
 * {@link Client.semaphore}. It is a description and holds nothing by itself. It may be kept, shared and used any number of
 * times.
 */
export class Lock {
  /** The name, without the prefix. */
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
    this.#reentrant = REENTRANT.has(kind)
  }

  /**
   * Waits until the lock is held. Uncontended: one round trip.
   *
   * Waiting does not poll: a release wakes the next waiter. It keeps the process alive. The lease begins when it is granted:
   * waiting does not shorten it. A server that cannot be reached is retried until the timeout has passed, or without a
   * timeout for 30 s (`unreachableLimit`).
   *
   * ```ts
   * const lease = await client.lock('orders:42').acquire({ timeout: 5_000 })
   * ```
   *
   * @throws {LockTimeoutError} when the lock was held for the whole timeout; {@link LockBusyError} for a timeout of 0
   * @throws the reason of `signal` when it is aborted: then nothing is held
   * @throws {OnelockError} what the server says, and {@link InvalidArgumentError} before any I/O
   */
  async acquire(options?: AcquireOptions): Promise<Lease> {
    const { wait, signal } = waiting(options, 'acquire', () => printable(this.name))
    return resultOf(await this.#enter(wait, signal, this.#entry())) as Lease
  }

  /**
   * One try: `null` when the lock is held. One round trip, no waiting.
   *
   * @throws as {@link Lock.acquire}
   */
  async tryAcquire(options?: { signal?: AbortSignal | undefined }): Promise<Lease | null> {
    const shown = () => printable(this.name)
    const { wait, signal } = waiting(options, 'try_acquire', shown)
    if (wait !== FOR_EVER) throw invalid('try_acquire', 'it takes no timeout: it never waits; use acquire', shown())
    return resultOf(await this.#enter(ONE_TRY, signal, this.#entry()))
  }

  /**
   * Runs `body` while the lock is held, and releases at the end. Waits for the lock as {@link Lock.acquire} does, with
   * its options.
   *
   * The signal aborts when the lease is lost. The body should stop then; nothing else can stop it. An error of the body is
   * never replaced by a problem of the release; a loss becomes its `cause` if it has none. If the body succeeds although
   * the lease was lost, this rejects with {@link LockLostError}.
   *
   * The process is kept alive until the body has ended, also while it waits only for the signal.
   *
   * On a reentrant lock the async context of the body is the owner: an acquire of the same lock inside it, through the same
   * client, enters again.
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
    const lease = resultOf(await this.#enter(wait, signal, entry)) as Lease
    return await whileHeld(lease, () => this.#run(entry.owner, () => body(lease.signal, lease)))
  }

  async #run<T>(owner: string | undefined, body: () => Promise<T> | T): Promise<T> {
    return await (owner === undefined ? body() : runAs(this.#client, this.#key(), owner, body))
  }

  /** @internal What tells it from others. */
  identity(): string {
    let client = clients.get(this.#client)
    if (client === undefined) {
      counted += 1
      client = counted
      clients.set(this.#client, client)
    }
    return `${client} ${this.#number} ${this.#key()}`
  }

  /** @internal As a member of several locks; `owned` makes an owner of its async context where there is none. */
  member(owned: boolean): Member {
    const entry = this.#entry()
    if (owned && this.#reentrant && entry.owner === undefined) this.#own(entry, new Owner().id)
    return {
      client: this.#client,
      kind: this.#number,
      name: this.name,
      values: entry.values ?? {},
      run: (body) => this.#run(entry.owner, body),
    }
  }

  /**
   * Takes over a hold that another process detached with {@link Lease.detach}. One round trip. The ttl begins now; name,
   * kind and prefix must be those of the detached lock.
   *
   * The server replaces the token of the hold, so a proof attaches only once. The fencing token stays the same (Redlock: it
   * may be higher). After an error that does not tell whether the server attached, such as {@link ServerUnavailableError},
   * the hold is released if it did.
   *
   * @throws {InvalidArgumentError} for a text that is not a proof
   * @throws {LockLostError} when the hold has ended, or the proof was used before
   */
  async attach(proof: string): Promise<Lease> {
    if (typeof proof !== 'string') {
      throw invalid('attach', 'the proof must be the text that detach returned', printable(this.name))
    }
    const { values } = this.#entry()
    const begin = (call: number) => bridge.attach(call, this.#client, this.#number, this.name, proof, values)
    return resultOf(await pump.call(begin, (_, id, fence) => new Lease(this.name, this.#kindOf(id), id, fence)))
  }

  /**
   * Whether the lock is held, by this client or another. One round trip. The answer may be outdated when it arrives: to act
   * on it, use {@link Lock.tryAcquire}.
   */
  async isLocked(): Promise<boolean> {
    const begin = (call: number) => bridge.isLocked(call, this.#client, this.#number, this.name, this.#values)
    return resultOf(await pump.call(begin, (_, flag) => flag === 1))
  }

  /** Who reads inside its own write lease holds that one again. */
  #kindOf(id: number): Kind {
    return this.kind === 'read_lock' && bridge.writes(id) ? 'write_lock' : this.kind
  }

  get #number(): number {
    return KINDS[this.kind]
  }

  #key(): string {
    return Buffer.from(this.name as string).toString('latin1')
  }

  /** The owner from the options, or that of the async context. */
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
      (call) => bridge.acquire(call, this.#client, this.#number, this.name, wait, values),
      (code, id, fence) => (code === NOTHING ? null : new Lease(this.name, this.#kindOf(id), id, fence)),
      signal,
    )
  }
}

/** @internal Runs a body while a lease is held, and releases it at the end. The process is kept alive meanwhile. */
export async function whileHeld<T>(lease: Lease, body: () => Promise<T>): Promise<T> {
  busy.begin()
  try {
    let value: T
    try {
      value = await body()
    } catch (error) {
      await lease.release()
      const loss = lease.loss
      if (loss !== null) addCause(error, lease.lossError(loss))
      throw error
    }
    await lease.release()
    // also a loss that only the release detected
    const loss = lease.loss
    if (loss !== null) throw lease.lossError(loss)
    return value
  } finally {
    busy.end()
  }
}

/** Makes the loss the cause of the body's error, if the error has no cause. */
function addCause(error: unknown, loss: Error): void {
  if (!(error instanceof Error) || error === loss || error.cause !== undefined || !Object.isExtensible(error)) return
  Object.defineProperty(error, 'cause', { value: loss, configurable: true, writable: true, enumerable: false })
}
