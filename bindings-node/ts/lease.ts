// A lease: one granted hold, which can be released, extended and lost.

import './polyfill'

import { AsyncResource } from 'node:async_hooks'
import { EventEmitter } from 'node:events'
import { codeOfLoss, type Kind, type LossReason, lossOf, type Release, releaseOf } from './codes'
import { type LockLostError, toError } from './errors'
import { native } from './native'
import { type Grade, type LockName, milliseconds, printable } from './options'
import { bridge, pump, resultOf, warn } from './pump'

/** What a lease holds: one lock of a kind, or several locks. */
export type LeaseKind = Kind | 'multi_lock'

interface Leaked {
  id: number
  name: LockName
}

/** Releases leases that were collected without a release, with a warning. */
const leaks = new FinalizationRegistry<Leaked>(({ id, name }) => {
  pump.unlisten(id)
  if (bridge.forget(id)) {
    const text = `a lease of "${printable(name)}" was garbage-collected while it was held, and was released now; `
    warn(`${text}call release(), or use "await using" or lock.using()`, 'ONELOCK_LEASE_LEAKED')
  }
})

function tokenOf(fence: number): number | null {
  return fence < 0 ? null : fence
}

/** Keeps a lease alive as long as its signal. */
const LEASE = Symbol('onelock.lease')

/** The events of a lease. */
export interface LeaseEvents {
  /** The lease was lost. Emitted once. `lease.held` may turn false before it. */
  lost: [reason: LossReason, error: LockLostError]
  /** A renewal was missed; the lease is still valid. */
  jeopardy: []
}

/**
 * One granted hold of a lock, from {@link Lock.acquire}. Release it with {@link Lease.release}, or declare it with
 * `await using`.
 *
 * It is renewed in the background, on another thread than the event loop, until it is released or lost. `held` is always
 * correct; the events and the signal may come late.
 *
 * ```ts
 * await using lease = await client.lock('orders:42').acquire()
 * await charge(order, { fence: lease.fencingToken, signal: lease.signal })
 * ```
 *
 * Events: `lost` (reason, error) and `jeopardy`. An error that a listener throws becomes a process warning.
 */
export class Lease extends EventEmitter<LeaseEvents> {
  /** The name of the lock, without the prefix; of several locks all names in one text, for messages. */
  readonly name: LockName
  /** The names of the locks that are held together, in the order in which they were named; one for a lease of one lock. */
  readonly names: readonly LockName[]
  #kind: LeaseKind
  readonly #id: number
  #fence: number
  readonly #tokens: ReadonlyMap<LockName, number | null> | undefined
  #released = false
  #loss: LossReason | null = null
  #error: LockLostError | undefined
  #controller: AbortController | undefined
  #context: AsyncResource | undefined
  #reportsJeopardy = false

  /** @internal */
  constructor(name: LockName, kind: LeaseKind, id: number, fence: number, several?: readonly LockName[]) {
    super()
    this.name = name
    this.names = several ?? [name]
    if (several !== undefined) {
      this.#tokens = new Map(several.map((one) => [one, tokenOf(bridge.fencingTokenOf(id, one))]))
    }
    this.#kind = kind
    this.#id = id
    this.#fence = fence
    leaks.register(this, { id, name }, this)
  }

  /** The kind of lock; `multi_lock` for several. */
  get kind(): LeaseKind {
    return this.#kind
  }

  /**
   * The fencing token, a number that the protected resource compares: it refuses a token lower than the highest it has
   * seen. `null` when fencing is off, and for a lease of several locks, each of which has its own:
   * {@link Lease.fencingTokens}.
   *
   * It grows with every grant of the name, but not by one. It is below 2^53, so a JavaScript number is exact; a database
   * column for it needs 64 bits. It stays readable after the release.
   */
  get fencingToken(): number | null {
    return tokenOf(this.#fence)
  }

  /** The fencing token of each lock by its name, as it was given; see {@link Lease.fencingToken}. */
  get fencingTokens(): ReadonlyMap<LockName, number | null> {
    return this.#tokens ?? new Map([[this.name, this.fencingToken]])
  }

  /** The grade of the fencing token, from the server's configuration. */
  get fencingGrade(): Grade {
    return bridge.fencingGrade(this.#id) as Grade
  }

  /**
   * Whether this lease holds the lock now: not released, not lost, and before its deadline. Computed at the call, without
   * I/O: a process that was stopped past the deadline reads `false` when it continues.
   */
  get held(): boolean {
    return !this.#released && bridge.isHeld(this.#id)
  }

  /** Milliseconds until the deadline, without further renewals; 0 when it is not held. No I/O. */
  get remaining(): number {
    return this.#released ? 0 : bridge.remaining(this.#id)
  }

  /**
   * Why the lease was lost; `null` while it is held, and after a release. A release that finds the hold gone before its
   * deadline counts as a loss. No I/O.
   */
  get loss(): LossReason | null {
    return this.#released ? this.#loss : lossOf(bridge.loss(this.#id))
  }

  /** The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held. No I/O. */
  get holdCount(): number {
    return this.#released ? 0 : bridge.holdCount(this.#id)
  }

  /**
   * Aborts when the lease is lost, with a {@link LockLostError} as its reason; not when it is released. Pass it to `fetch`,
   * timers and streams.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      Object.defineProperty(this.#controller.signal, LEASE, { value: this })
      this.#hearLoss()
      const loss = this.loss
      if (loss !== null) this.#controller.abort(this.lossError(loss))
    }
    return this.#controller.signal
  }

  /**
   * Sets the end of the lease to `ttl` milliseconds from now, unless it ends later already. It never adds or shortens.
   *
   * From 10 ms to one year. Automatic renewal continues with the longer of the two lengths. One round trip; after a lost
   * reply the request is sent once more.
   *
   * @throws {InvalidArgumentError} before any I/O
   * @throws {LockLostError} when the lease was lost
   * @throws {LockNotHeldError} when it was released
   * @throws {ServerUnavailableError} when no server answered; the deadline is unchanged
   */
  async extend(ttl: number): Promise<void> {
    const ms = milliseconds(ttl, 'ttl', 'extend', printable(this.name))
    const begin = (call: number) => bridge.extend(call, this.#id, ms)
    // keeps the lease from being collected before the reply
    resultOf(await pump.call(begin, () => void this))
  }

  /**
   * Makes a write lease a read lease, in place: other readers may enter from now on, and at no moment could another writer.
   * `kind` becomes `read_lock`, and `fencingToken` a new one. A read lease stays what it is. One round trip.
   *
   * @throws {InvalidArgumentError} for another kind of lock
   * @throws {LockBusyError} while its owner enters or leaves it
   * @throws {LockLostError} when the lease was lost
   * @throws {LockNotHeldError} when it was released
   * @throws {ServerUnavailableError} when no server answered: it counts as a read lease then, and a further call asks again
   */
  async downgrade(): Promise<void> {
    const begin = (call: number) => bridge.downgrade(call, this.#id)
    const done = await pump.call(begin, () => void this)
    if (this.#kind === 'write_lock' && !bridge.writes(this.#id)) this.#kind = 'read_lock'
    resultOf(done)
    if (this.names.length === 1) this.#fence = bridge.fencingTokenOf(this.#id, this.name)
  }

  /**
   * Releases the lock, wakes a waiter, and returns what the server found. Idempotent; one round trip, within
   * `requestTimeout`. It does not reject because of the server: that is an outcome.
   *
   * If a reentrant lock was entered more than once, this releases one entry; the last release releases the lock.
   */
  async release(): Promise<Release> {
    if (this.#released) return 'already_released'
    return resultOf(
      await pump.call(
        (call) => {
          this.#loss = lossOf(bridge.release(call, this.#id))
          this.#released = true
          leaks.unregister(this)
        },
        (_, outcome, loss) => {
          this.#loss ??= lossOf(loss)
          pump.unlisten(this.#id)
          // the release detected the loss itself, or came before the event
          if (this.#reportsLoss && this.#loss !== null) this.onLoss(codeOfLoss(this.#loss))
          return releaseOf(outcome)
        },
      ),
    )
  }

  /**
   * Detaches the hold for another process: the returned text is the proof for {@link Lock.attach}, and this lease holds
   * nothing from now on. No I/O.
   *
   * Attach before the ttl has passed; the hold is not renewed meanwhile. The first attach with the text gets the lock, and
   * every later one {@link LockLostError}: keep the text secret. A release of this lease sends nothing and returns
   * `already_released`.
   *
   * Of several locks it is one proof a line, in the order of `names`; attach with each to its lock.
   *
   * @throws {LockLostError} or {@link LockNotHeldError} when the lease is not held
   * @throws {InvalidArgumentError} when it was entered more than once, or its downgrade was not answered
   */
  detach(): string {
    const proof = bridge.detach(this.#id)
    if (proof === null) throw toError(bridge.takeFailure(0))
    this.#released = true
    leaks.unregister(this)
    pump.unlisten(this.#id)
    return proof
  }

  /**
   * The same as {@link Lease.release}, for `await using`. It does not throw, since that would hide an error of the block.
   * `loss`, the signal and the event tell whether the lease was lost, also if only this release detected it.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }

  override on<K extends keyof LeaseEvents>(event: K, listener: (...args: LeaseEvents[K]) => void): this {
    this.#hear(event)
    return super.on(event, listener as never)
  }

  override addListener<K extends keyof LeaseEvents>(event: K, listener: (...args: LeaseEvents[K]) => void): this {
    return this.on(event, listener)
  }

  override prependListener<K extends keyof LeaseEvents>(event: K, listener: (...args: LeaseEvents[K]) => void): this {
    this.#hear(event)
    return super.prependListener(event, listener as never)
  }

  /** @internal The error of the loss, always the same object. */
  lossError(loss: LossReason): LockLostError {
    this.#error ??= toError(native.lossFailure(this.name, codeOfLoss(loss))) as LockLostError
    return this.#error
  }

  #hear(event: string): void {
    if (event === 'lost') this.#hearLoss()
    if (event === 'jeopardy' && !this.#reportsJeopardy && !this.#released) {
      this.#reportsJeopardy = true
      this.#listen()
      bridge.watchJeopardy(this.#id)
    }
  }

  #reportsLoss = false
  #toldLoss = false

  #hearLoss(): void {
    if (this.#reportsLoss || this.#released) return
    this.#reportsLoss = true
    this.#listen()
    bridge.watchLoss(this.#id)
  }

  #listen(): void {
    // listeners run in the async context of the first listener, not in that of the native module
    this.#context ??= new AsyncResource('onelock.Lease', { requireManualDestroy: true })
    pump.listen(this.#id, this)
  }

  /** @internal */
  onLoss(code: number): void {
    if (this.#toldLoss) return
    this.#toldLoss = true
    const reason = lossOf(code) ?? 'expired'
    const error = this.lossError(reason)
    this.#tell(() => {
      this.#controller?.abort(error)
      this.emit('lost', reason, error)
    })
  }

  /** @internal */
  onJeopardy(): void {
    this.#tell(() => this.emit('jeopardy'))
  }

  #tell(event: () => void): void {
    try {
      this.#context?.runInAsyncScope(event)
    } catch (thrown) {
      const what = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)
      warn(`a listener of a lease of "${printable(this.name)}" threw: ${what}`, 'ONELOCK_LISTENER_THREW')
    }
  }
}
