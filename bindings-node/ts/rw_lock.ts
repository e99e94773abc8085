// A read/write lock: many readers at a time, or one writer.

import { Lock } from './lock'
import type { NativeClient, Values } from './native'
import type { LockName } from './options'

/**
 * A read/write lock by name, from {@link Client.rwLock}: many readers at a time, or one writer. It holds nothing by itself.
 *
 * A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves.
 *
 * ```ts
 * const catalogue = client.rwLock('catalogue')
 * await catalogue.read().using(async () => await look())
 * await catalogue.write().using(async (signal, lease) => await change({ signal, fence: lease.fencingToken }))
 * ```
 */
export class RwLock {
  /** The name, without the prefix. */
  readonly name: LockName
  readonly #read: Lock
  readonly #write: Lock

  /** @internal */
  constructor(client: NativeClient, name: LockName, values: Values | undefined) {
    this.name = name
    this.#read = new Lock(client, 'read_lock', name, values)
    this.#write = new Lock(client, 'write_lock', name, values)
  }

  /** The reading side: any number of leases at a time, while nobody writes. */
  read(): Lock {
    return this.#read
  }

  /**
   * The writing side: one lease, and nobody reads meanwhile.
   *
   * An owner that writes may read and write again. One that reads gets {@link WouldDeadlockError}: it would wait for itself.
   */
  write(): Lock {
    return this.#write
  }
}
