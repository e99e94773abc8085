// A semaphore: so many permits, each a lease of its own.

import { KINDS, NOTHING } from './codes'
import type { Lease } from './lease'
import { type Body, Lock } from './lock'
import type { NativeClient, Values } from './native'
import { type AcquireOptions, type LockName, permitsNumber, printable } from './options'
import { bridge, pump, resultOf } from './pump'

/** The options of waiting for permits. */
export interface PermitOptions extends AcquireOptions {
  /** How many permits to take: all or none. Default: 1. */
  permits?: number | undefined
}

/** The permits of a semaphore at one moment. */
export interface Permits {
  /** How many there are in all. */
  total: number
  /** How many are held. More than there are, for a while, after their number was made smaller. */
  held: number
  /** How many are free. */
  free: number
}

/**
 * A semaphore by name, from {@link Client.semaphore}: at most so many holders at a time, in all programs together.
 *
 * A permit is released by its own lease, once. The permits of a program that died come back after their ttl.
 * {@link Lock.isLocked} tells whether no permit is free.
 */
export class Semaphore extends Lock {
  readonly #client: NativeClient
  readonly #values: Values | undefined

  /** @internal */
  constructor(client: NativeClient, name: LockName, values: Values | undefined) {
    super(client, 'semaphore', name, values)
    this.#client = client
    this.#values = values
  }

  /**
   * Waits until so many permits are free and takes them, all or none; see {@link Lock.acquire}.
   *
   * ```ts
   * const lease = await client.semaphore('downloads', { permits: 4 }).acquire({ permits: 2 })
   * ```
   *
   * @throws {PermitsMismatchError} when the semaphore has another number of permits than was said, or none is set
   * @throws {InvalidArgumentError} when it has fewer than that
   */
  override async acquire(options?: PermitOptions): Promise<Lease> {
    const [count, rest] = this.#split(options, 'acquire')
    return count === undefined ? super.acquire(rest) : this.#taking(count).acquire(rest)
  }

  /** One try: `null` when too few permits are free. One round trip, no waiting. */
  override async tryAcquire(options?: Omit<PermitOptions, 'timeout'>): Promise<Lease | null> {
    const [count, rest] = this.#split(options, 'try_acquire')
    return count === undefined ? super.tryAcquire(rest) : this.#taking(count).tryAcquire(rest)
  }

  /** Runs `body` while the permits are held, and releases them at the end; see {@link Lock.using}. */
  override using<T>(body: Body<T>): Promise<T>
  override using<T>(options: PermitOptions, body: Body<T>): Promise<T>
  override async using<T>(first: PermitOptions | Body<T>, second?: Body<T>): Promise<T> {
    // what is wrong with the arguments, the lock says
    if (typeof first === 'function') return super.using(first as AcquireOptions, second as Body<T>)
    const [count, rest] = this.#split(first, 'using')
    const body = second as Body<T>
    return count === undefined ? super.using(rest as AcquireOptions, body) : this.#taking(count).using(rest ?? {}, body)
  }

  /**
   * How many permits there are, and how many of them are held; `null` when no number is set yet. One round trip. The answer
   * may be outdated when it arrives: to act on it, use {@link Semaphore.tryAcquire}.
   */
  async permits(): Promise<Permits | null> {
    const begin = (call: number) => bridge.permits(call, this.#client, KINDS.semaphore, this.name, this.#values)
    return resultOf(await pump.call(begin, (code, total, held) => (code === NOTHING ? null : counted(total, held))))
  }

  /**
   * Sets how many permits there are in all, 1 to 1024. Whoever holds permits keeps them. Programs that name another number
   * get {@link PermitsMismatchError} from now on.
   */
  async setPermits(permits: number): Promise<Permits> {
    const total = permitsNumber(permits, 'set_permits', printable(this.name))
    const begin = (call: number) =>
      bridge.setPermits(call, this.#client, KINDS.semaphore, this.name, total, this.#values)
    return resultOf(await pump.call(begin, (_, total, held) => counted(total, held)))
  }

  #split<O extends PermitOptions>(
    options: O | undefined,
    tried: string,
  ): [number | undefined, Omit<O, 'permits'> | undefined] {
    if (typeof options !== 'object' || options === null || !('permits' in options)) return [undefined, options]
    const { permits, ...rest } = options
    return [permits === undefined ? undefined : permitsNumber(permits, tried, printable(this.name)), rest]
  }

  #taking(count: number): Lock {
    return new Lock(this.#client, 'semaphore', this.name, { ...this.#values, count })
  }
}

function counted(total: number, held: number): Permits {
  return { total, held, free: Math.max(total - held, 0) }
}
