// Several locks at once: all are held, or none.

import { FOR_EVER, NOTHING, ONE_TRY } from './codes'
import { invalid } from './errors'
import { Lease } from './lease'
import { type Body, Lock, type Member, whileHeld } from './lock'
import { type AcquireOptions, type LockName, printable, type Waiting, waiting } from './options'
import { bridge, pump, resultOf } from './pump'

/**
 * Several locks as one, from {@link Client.multiLock} or {@link MultiLock.of}: all are held, or none. It is a description and
 * holds nothing by itself.
 *
 * The lease is held while all of them are, and the first loss is the loss of the whole. They are acquired one after the
 * other, in an order that is the same for all programs, and held while later ones are waited for: callers of overlapping
 * sets never wait in a circle. So name the locks of one piece of work together, instead of acquiring one while holding
 * another.
 */
export class MultiLock {
  /** The names, without prefixes. A lock that was named twice is there once. */
  readonly names: readonly LockName[]
  /** The names in one text, for messages. */
  readonly name: string
  /** `multi_lock` */
  readonly kind = 'multi_lock'
  readonly #locks: readonly Lock[]

  /** @internal */
  constructor(locks: readonly Lock[]) {
    const seen = new Map<string, Lock>()
    for (const lock of locks) seen.set(lock.identity(), seen.get(lock.identity()) ?? lock)
    this.#locks = locks
    this.names = [...seen.values()].map((lock) => lock.name)
    this.name = this.names.map(printable).join(', ')
  }

  /**
   * These locks together: of any kind, of any clients, each with its own options. No I/O.
   *
   * ```ts
   * const both = MultiLock.of(accounts.lock('account:1'), audit.reentrantLock('log'))
   * await using lease = await both.acquire({ timeout: 5_000 })
   * ```
   *
   * @throws {InvalidArgumentError} for no lock, and for what is not a lock. That one name has two kinds, that one
   * lock has two owners, or that there are more than 32 locks, an acquire says, before any I/O
   */
  static of(...locks: Lock[]): MultiLock {
    if (locks.length === 0) throw invalid('describe locks', 'no lock was named; name at least one')
    if (!locks.every((lock) => lock instanceof Lock)) {
      throw invalid('describe locks', 'give locks such as client.lock(name), one after the other: MultiLock.of(a, b)')
    }
    return new MultiLock(locks)
  }

  /**
   * Waits until all of them are held; see {@link Lock.acquire}. Uncontended: one round trip for plain locks on one
   * server, else one for each. However it ends without a lease, nothing is left held.
   *
   * @throws as {@link Lock.acquire}; the error names the lock that it is about
   */
  async acquire(options?: AcquireOptions): Promise<Lease> {
    const { wait, signal } = waiting(options, 'acquire', () => this.name)
    return resultOf(await this.#enter(wait, signal, this.#members(false))) as Lease
  }

  /**
   * One try: `null`, and nothing is held, when one of them is held by others.
   *
   * @throws as {@link MultiLock.acquire}
   */
  async tryAcquire(options?: { signal?: AbortSignal | undefined }): Promise<Lease | null> {
    const { wait, signal } = waiting(options, 'try_acquire', () => this.name)
    if (wait !== FOR_EVER) throw invalid('try_acquire', 'it takes no timeout: it never waits; use acquire', this.name)
    return resultOf(await this.#enter(ONE_TRY, signal, this.#members(false)))
  }

  /** Runs `body` while all of them are held, and releases at the end; see {@link Lock.using}. */
  using<T>(body: Body<T>): Promise<T>
  using<T>(options: AcquireOptions, body: Body<T>): Promise<T>
  async using<T>(first: AcquireOptions | Body<T>, second?: Body<T>): Promise<T> {
    const [options, body] = typeof first === 'function' ? [undefined, first] : [first, second]
    if (typeof first === 'function' && second !== undefined) {
      throw invalid('using', 'the options come first: lock.using(options, body)', this.name)
    }
    if (typeof body !== 'function') {
      throw invalid('using', 'the body must be a function such as async (signal, lease) => ...', this.name)
    }
    const { wait, signal } = waiting(options, 'using', () => this.name)
    const members = this.#members(true)
    const lease = resultOf(await this.#enter(wait, signal, members)) as Lease
    // the async context of the body is the owner of every reentrant member
    const inside = members.reduce<() => Promise<T> | T>(
      (run, member) => () => member.run(run),
      () => body(lease.signal, lease),
    )
    return await whileHeld(lease, async () => await inside())
  }

  /** Whether one of them is held, by this client or another. One round trip for each. */
  async isLocked(): Promise<boolean> {
    return (await Promise.all(this.#locks.map((lock) => lock.isLocked()))).includes(true)
  }

  #members(owned: boolean): Member[] {
    return this.#locks.map((lock) => lock.member(owned))
  }

  #enter(wait: number, signal: Waiting['signal'], members: Member[]) {
    return pump.call(
      (call) =>
        bridge.acquireMany(
          call,
          members.map((member) => member.client),
          members.map((member) => member.kind),
          members.map((member) => member.name),
          wait,
          members.map((member) => member.values),
        ),
      (code, id, fence) => (code === NOTHING ? null : new Lease(this.name, this.kind, id, fence, this.names)),
      signal,
    )
  }
}
