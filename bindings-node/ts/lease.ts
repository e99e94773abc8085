// A lease: one granted hold. Release, extend and loss belong to it, never to the lock.

import './polyfill'

import { AsyncResource } from 'node:async_hooks'
import { EventEmitter } from 'node:events'
import { codeOfLoss, type LossReason, lossOf, type Release, releaseOf } from './codes'
import { type LockLostError, toError } from './errors'
import { native } from './native'
import { type Grade, type LockName, milliseconds, printable } from './options'
import { granted, pump, session, warn } from './pump'

/** The kinds of locks. */
export type Kind = 'lock' | 'reentrant_lock'

interface Leaked {
  id: number
  name: LockName
}

/** Leases that were let go of without a release: the lock is given back, and somebody should know. */
const leaks = new FinalizationRegistry<Leaked>(({ id, name }) => {
  pump.unlisten(id)
  if (session.forget(id)) {
    const text = `a lease of "${printable(name)}" was garbage-collected while it was held, and was given back now; `
    warn(`${text}call release(), or use "await using" or lock.using()`, 'ONELOCK_LEASE_LEAKED')
  }
})

/** Ties a lease to its signal: whoever has the signal has the lease. */
const LEASE = Symbol('onelock.lease')

/** What a lease tells. */
export interface LeaseEvents {
  /** The lease was lost. Once. `lease.held` is the truth and may be false before. */
  lost: [reason: LossReason, error: LockLostError]
  /** A renewal round was missed; the lease is still valid. An early sign. */
  jeopardy: []
}

/**
 * One granted hold of a lock, from {@link Lock.acquire}. Give it back with {@link Lease.release}, or declare it with
 * `await using`.
 *
 * It is renewed in the background, on another thread than the event loop, until it is released or lost. `held` is the
 * truth; the events and the signal are a courtesy that may come late.
 *
 * ```ts
 * await using lease = await client.lock('orders:42').acquire()
 * await charge(order, { fence: lease.fencingToken, signal: lease.signal })
 * ```
 *
 * Events: `lost` (reason, error) and `jeopardy`. What a listener throws becomes a process warning.
 */
export class Lease extends EventEmitter<LeaseEvents> {
  /** The name that is locked, as it was given (without the prefix). */
  readonly name: LockName
  /** The kind of lock. */
  readonly kind: Kind
  readonly #id: number
  readonly #fence: number
  #givenBack = false
  #loss: LossReason | null = null
  #error: LockLostError | undefined
  #controller: AbortController | undefined
  #context: AsyncResource | undefined
  #hearsJeopardy = false

  /** @internal */
  constructor(name: LockName, kind: Kind, id: number, fence: number) {
    super()
    this.name = name
    this.kind = kind
    this.#id = id
    this.#fence = fence
    leaks.register(this, { id, name }, this)
  }

  /**
   * The fencing token: a number for the protected resource, which refuses a lower one than it has seen. `null` when
   * fencing is off.
   *
   * It grows with every grant of the name, but not by one. It is below 2^53, so that a number is exact and goes through
   * `JSON.stringify`; a column for it needs 64 bits. It stays readable after the release.
   */
  get fencingToken(): number | null {
    return this.#fence < 0 ? null : this.#fence
  }

  /** How strong the fencing token is, as far as the server's configuration tells. */
  get fencingGrade(): Grade {
    return session.fencingGrade(this.#id) as Grade
  }

  /**
   * Whether this lease holds the lock right now: not released, not lost, deadline ahead. No I/O, computed at the call: a
   * process that was stopped sees `false` on its first look after waking.
   */
  get held(): boolean {
    return !this.#givenBack && session.isHeld(this.#id)
  }

  /** Milliseconds until the deadline if nothing more is renewed; 0 when it is not held. No I/O. */
  get remaining(): number {
    return this.#givenBack ? 0 : session.remaining(this.#id)
  }

  /**
   * Why the lease was lost; `null` while it is held, and when it was released. A release that finds the hold gone before
   * its deadline is a loss. No I/O.
   */
  get loss(): LossReason | null {
    return this.#givenBack ? this.#loss : lossOf(session.loss(this.#id))
  }

  /** How often the owner has entered; 1 for a lock that is not reentrant, 0 when it is not held. No I/O. */
  get holdCount(): number {
    return this.#givenBack ? 0 : session.holdCount(this.#id)
  }

  /**
   * Aborts when the lease is lost, with a {@link LockLostError} as its reason; never when it is released. Pass it on to
   * `fetch`, to timers, to streams.
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
   * Makes the lease last `ttl` milliseconds from now, unless it lasts longer already: sets, never adds, never shortens.
   *
   * From 10 ms to one year. With automatic renewal it goes on with the longer of both lengths. One round trip; a lost
   * reply is asked for once more.
   *
   * @throws {InvalidArgumentError} before any I/O
   * @throws {LockLostError} when there is nothing left to extend
   * @throws {LockNotHeldError} when it was released
   * @throws {ServerUnavailableError} when no server answered; the deadline stays where it was
   */
  async extend(ttl: number): Promise<void> {
    const ms = milliseconds(ttl, 'ttl', 'extend', printable(this.name))
    const begin = (call: number) => session.extend(call, this.#id, ms)
    // the lease is not collected before the answer is there
    granted(await pump.call(begin, () => void this))
  }

  /**
   * Gives the lock back, wakes a waiter, and tells what the server found. Idempotent; one round trip, within
   * `requestTimeout`. It never rejects because of the server: that is an outcome.
   *
   * Of a reentrant lock that was entered more than once, this lease's entry is given back; the last one gives back the
   * lock.
   */
  async release(): Promise<Release> {
    if (this.#givenBack) return 'already_released'
    return granted(
      await pump.call(
        (call) => {
          this.#loss = lossOf(session.release(call, this.#id))
          this.#givenBack = true
          leaks.unregister(this)
        },
        (_, outcome, loss) => {
          this.#loss ??= lossOf(loss)
          pump.unlisten(this.#id)
          // the release itself found it out, or was quicker than the event
          if (this.#hearsLoss && this.#loss !== null) this.heardLoss(codeOfLoss(this.#loss))
          return releaseOf(outcome)
        },
      ),
    )
  }

  /**
   * Hands the lease to another process: the returned text is the proof of the hold for {@link Lock.attach}, and this
   * lease holds nothing from now on. No I/O.
   *
   * Attach within what is left of the ttl; nobody renews meanwhile. Whoever attaches first with the text has the lock,
   * and anybody after that gets {@link LockLostError}: keep it secret. A release of this lease sends nothing and says
   * `already_released`.
   *
   * @throws {LockLostError} or {@link LockNotHeldError} when there is nothing to hand over
   * @throws {InvalidArgumentError} when it was entered more than once
   */
  detach(): string {
    const proof = session.detach(this.#id)
    if (proof === null) throw toError(session.takeFailure(0))
    this.#givenBack = true
    leaks.unregister(this)
    pump.unlisten(this.#id)
    return proof
  }

  /**
   * The same as {@link Lease.release}, for `await using`. It never throws, which would hide an error of the block: whether
   * the lease was lost, also if only this release finds it out, say `loss`, the signal and the event.
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

  /** @internal The error that tells of the loss, always the same one. */
  lossError(loss: LossReason): LockLostError {
    this.#error ??= toError(native.lossFailure(this.name, codeOfLoss(loss))) as LockLostError
    return this.#error
  }

  #hear(event: string): void {
    if (event === 'lost') this.#hearLoss()
    if (event === 'jeopardy' && !this.#hearsJeopardy && !this.#givenBack) {
      this.#hearsJeopardy = true
      this.#listen()
      session.watchJeopardy(this.#id)
    }
  }

  #hearsLoss = false
  #toldLoss = false

  #hearLoss(): void {
    if (this.#hearsLoss || this.#givenBack) return
    this.#hearsLoss = true
    this.#listen()
    session.watchLoss(this.#id)
  }

  #listen(): void {
    // listeners run in the async context of the first of them, not in that of the native module
    this.#context ??= new AsyncResource('onelock.Lease', { requireManualDestroy: true })
    pump.listen(this.#id, this)
  }

  /** @internal */
  heardLoss(code: number): void {
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
  heardJeopardy(): void {
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
