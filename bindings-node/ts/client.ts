// The client: the connection to a store, and the defaults of its locks.

import './polyfill'

import type { Kind } from './codes'
import { type Diagnosis, diagnosisOf } from './diagnosis'
import { invalid, toError } from './errors'
import { Lock } from './lock'
import { MultiLock } from './multi_lock'
import type { NativeClient, NativeInspection } from './native'
import {
  type ClientOptions,
  type CredentialsProvider,
  clientValues,
  type ForceReleaseOptions,
  foreignToo,
  type Grade,
  type ListOptions,
  type LockName,
  type LockOptions,
  listValues,
  lockName,
  lockValues,
  permitsNumber,
  printable,
  type SemaphoreOptions,
} from './options'
import { bridge, pump, resultOf, warn, watchExit } from './pump'
import { RwLock } from './rw_lock'
import { Semaphore } from './semaphore'

/** Where the server is: an address, or several for independent servers. */
export type Address = string | readonly string[]

/** Facts about the server, from {@link Client.check}. */
export interface Facts {
  /** The grade of its fencing tokens; `None` for a client without fencing. */
  grade: Grade
  /** Settings of the server that can break locks, each as a sentence that names the setting to change. */
  warnings: string[]
  /** The warnings that endanger exclusion and were not accepted; they are logged as warnings. */
  dangers: string[]
  /** The server's name and version, such as `valkey 9.1.0`. */
  server: string
}

/** The holder of a lock. */
export interface Holder {
  /** The client's label, free text. */
  label: string
  /** The process id. */
  pid: number
  /** The host's name. */
  host: string
  /** When it was granted. */
  since: Date
}

/** Which client's lock it is, as far as can be told. `other` is any client that writes a string with `SET NX`. */
export type Origin = 'onelock' | 'redisson' | 'other'

/** The state of a lock on the server, from {@link Client.inspect}. */
export interface Inspection {
  /** The kind of lock. */
  kind: Kind
  /** Which client's it is, as far as can be told. */
  origin: Origin
  /** The holder, if it is an `inspectable` client of this library. */
  owner: Holder | null
  /**
   * Of a holder that is no client of this library: as much of what it wrote as tells people who it is, and is no proof or
   * secret. `null` where nothing of it can be shown.
   */
  foreignHolder: string | null
  /** How often the holder has entered; of a semaphore, how many permits are held; of readers, how many there are. */
  holdCount: number
  /** Time to live of the key on the server, in ms; `null` for a foreign key without one. */
  ttlLeft: number | null
  /** The fencing token of the present hold; `null` for a holder without one. */
  fencingToken: number | null
  /** Of a semaphore, how many permits there are in all; else `null`. */
  permits: number | null
  /** Of a semaphore, how many permits are free; else `null`. */
  free: number | null
  /** How many processes wait for it, by listening or in its queue. `null` where the server doesn't tell. */
  waiting: number | null
  /**
   * Those of them that have a place in the queue on the server, the first 16, the head first: who waits for a fair lock, for
   * permits of a semaphore, or to write. Who waits for any other lock, or to read, has told the server no name.
   */
  waiters: Waiter[]
}

/** A client that waits for a lock with a place in its queue, from {@link Inspection.waiters}. */
export interface Waiter {
  /** The client, if it is an `inspectable` one of this library. Its `since` is when it asked last. */
  client: Holder | null
  /** Since when it has its place, by the server's clock. */
  since: Date
}

/** A lock that stands on the server, from {@link Client.list}. */
export interface LockEntry {
  /** The lock's name without the client's prefix: a string, or bytes that are no UTF-8. */
  name: LockName
  /** What stands under the name, as {@link Client.inspect} tells it. */
  inspection: Inspection
  /** How many processes wait for it, by listening or in its queue. `null` where the server doesn't tell. */
  waiting: number | null
}

/** Some of the locks of a server, from {@link Client.list}. */
export interface LockPage {
  /** The locks, in no order. May be empty though more follow. */
  entries: LockEntry[]
  /** What to give as `cursor` for the next page; `null` on the last one. */
  next: string | null
}

/** A histogram of durations, in milliseconds. Quantiles are upper bounds, at most twice too high. */
export interface Durations {
  /**
   * The counts: bucket `i` has the durations below `2 ** i` microseconds and not below `2 ** (i - 1)`; the last has everything
   * longer.
   */
  buckets: number[]
  /** The number of durations. */
  count: number
  /** Their sum. */
  sum: number
  /** The median. */
  p50: number
  /** The 90th percentile. */
  p90: number
  /** The 99th percentile. */
  p99: number
}

/** Counters of a client since it was made, from {@link Client.stats}. */
export interface Stats {
  /** Leases held now. */
  held: number
  /** Acquires waiting now. */
  waiting: number
  /** Acquires that were granted, re-entries included. */
  acquired: number
  /** Tries that found the lock busy. */
  busy: number
  /** Acquires that timed out. */
  timeouts: number
  /** Acquires that their caller cancelled. */
  cancelled: number
  /** Acquires that failed for another reason. */
  failed: number
  /** Leases that their holder released. */
  released: number
  /** Leases lost. */
  lost: number
  /** Renewals that were confirmed, one per lease and round. */
  renewals: number
  /** Renewal rounds of a lease that were missed. */
  renewalsMissed: number
  /** Clean-ups that are not finished yet. */
  cleaning: number
  /** Connections made after the first one. */
  reconnects: number
  /** Requests sent to the server. */
  commandsSent: number
  /** Time from the call to the grant. */
  wait: Durations
  /** Time from the grant to the end of the hold. */
  hold: Durations
}

/**
 * A client of one lock server: the way to locks. One for the whole program is enough.
 *
 * ```ts
 * const client = await Client.connect('redis://localhost')
 * ```
 *
 * Its background work (renewal, clean-up) runs on a thread of its own, which a blocked event loop does not stop, and
 * never keeps the process alive. When the process ends, what it still holds is released.
 */
export class Client {
  readonly #client: NativeClient

  /**
   * A client that connects when it is first used. Opens no socket.
   *
   * | address | what |
   * |---|---|
   * | `redis://[user[:password]@]host[:port][/db]` | one Redis or Valkey server; `valkey://` means the same |
   * | `rediss://...`, `valkeys://...` | the same over TLS |
   * | `unix:///path/to/socket` | one server through a socket in the file system; `?db=1` chooses the database |
   * | `redis+sentinel://s1:26379,s2:26379/GROUP[/db]` | the master of a group, found through any of its Sentinels |
   * | `redis+cluster://h1:6379,h2:6379` | a Redis or Valkey cluster; one node is enough, it tells the others |
   * | `redlock://h1:6379,h2:6379,h3:6379[/db]` | Redlock: several independent servers, of which a majority holds the lock |
   * | `file:///dir` | one machine without a server: a directory, in which each lock is a file that the kernel locks |
   * | `postgres://user[:password]@host[:port][/database]` | PostgreSQL 12 or newer: each lock is a row of a table |
   * | `memcached://[user:password@]host[:port]` | memcached 1.6.12 or newer, best effort only: each lock is an item |
   * | `etcd://[user:password@]h1:2379,h2:2379[/NAMESPACE]` | etcd 3.4 or newer: each lock is a queue of keys |
   * | `memory://` | inside the client, for unit tests; `memory://NAME` is shared within the process |
   * | (empty) | the address in `$ONELOCK_URL` |
   *
   * An array of addresses is Redlock over these servers: of Redis, and databases (`postgres://`), also side by side.
   *
   * @throws {InvalidArgumentError} names the option or the part of the address that is wrong
   */
  constructor(address?: Address, options?: ClientOptions)
  constructor(options: ClientOptions)
  constructor(first?: Address | ClientOptions, second?: ClientOptions) {
    const [address, options] = addressAndOptions(first, second)
    const values = clientValues(options)
    if (values.credentials !== undefined) {
      values.credentials = pump.providers.add(values.credentials as CredentialsProvider)
    }
    const client = bridge.open(addressText(address), values)
    if (client === null) throw toError(bridge.takeFailure(0))
    this.#client = client
    watchExit()
  }

  /**
   * A client that is connected and checked. Settings of the server that endanger exclusion become one process warning.
   *
   * @throws {OnelockError} what the server says: `ERR_ONELOCK_UNAVAILABLE`, `ERR_ONELOCK_AUTH_FAILED` ...
   */
  static connect(address?: Address, options?: ClientOptions): Promise<Client>
  static connect(options: ClientOptions): Promise<Client>
  static async connect(first?: Address | ClientOptions, second?: ClientOptions): Promise<Client> {
    const client = new Client(first as Address, second)
    const { server, dangers } = await client.check().catch(async (error) => {
      // the caller does not get this client: its connection is closed now, not when it is collected
      await client.close()
      throw error
    })
    for (const danger of dangers) warnOnce(`${server}: ${danger}`)
    return client
  }

  /**
   * The lock of this name: one holder at a time, among all clients with the same server, prefix and name. No I/O.
   *
   * A name has 1 to 512 bytes. The lock is not reentrant: a holder that acquires it again waits for its own release. On the
   * server it is a string that any `SET NX PX` client respects.
   */
  lock(name: LockName, options?: LockOptions): Lock {
    return this.#make('lock', name, options)
  }

  /**
   * The reentrant lock of this name: its owner may acquire it again. The owner is the option `owner`, or the async context
   * of {@link Lock.using}; without either, every acquire has an owner of its own. No I/O.
   *
   * On the server it is a hash that Redisson's `RLock` shares.
   */
  reentrantLock(name: LockName, options?: LockOptions): Lock {
    return this.#make('reentrant_lock', name, options)
  }

  /**
   * The fair lock of this name: first come, first served among the processes that wait. No I/O.
   *
   * Whoever releases it makes the first in the queue the holder. Each client has one place there, and its own waiters take
   * turns. A waiter that is killed or stands still loses its turn within a second. A single try never goes before somebody
   * who waits. It is not reentrant, and slower than {@link Client.lock}, which is free to whoever comes first; use it where
   * nobody may starve. Not on several servers (`redlock://`): acquiring fails with `UnsupportedError` there.
   */
  fairLock(name: LockName, options?: LockOptions): Lock {
    return this.#make('fair_lock', name, options)
  }

  /**
   * The read/write lock of this name: many readers at a time, or one writer, from `read()` and `write()`. No I/O.
   *
   * A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves. An
   * owner that writes may read and write again; owners are as in {@link Client.reentrantLock}. On the server it is a hash
   * that Redisson's `RReadWriteLock` shares. Not on several servers (`redlock://`): acquiring fails with `UnsupportedError`
   * there.
   */
  rwLock(name: LockName, options?: LockOptions): RwLock {
    const checked = lockName(name, 'describe a lock')
    return new RwLock(
      this.#client,
      checked,
      options === undefined ? undefined : lockValues(options, printable(checked)),
    )
  }

  /**
   * The semaphore of this name: at most `permits` holders at a time, 1 to 1024, in all programs together. No I/O.
   *
   * The number must be the same everywhere, or acquiring fails with {@link PermitsMismatchError}; left out it is whatever is
   * set. Every permit is a lease of its own. There is no fencing token, since several hold at once. Who waits is served
   * first come, first served, between programs too: a request for many permits is not passed by small ones. On the server
   * it is what Redisson's `RPermitExpirableSemaphore` has, whose clients do not queue. Redlock has none.
   */
  semaphore(name: LockName, options?: SemaphoreOptions): Semaphore {
    const checked = lockName(name, 'describe a lock')
    if (options !== undefined && (typeof options !== 'object' || options === null)) {
      // such as the number itself, which is the second argument in other languages
      throw invalid('describe a lock', 'options must be an object such as { permits: 4 }', printable(checked))
    }
    const { permits, ...rest } = options ?? {}
    const values = lockValues(rest, printable(checked)) ?? {}
    if (permits !== undefined) values.permits = permitsNumber(permits, 'describe a lock', printable(checked))
    return new Semaphore(this.#client, checked, values)
  }

  /**
   * The locks of these names, held all together or not at all. No I/O. The options are those of each lock; for locks of
   * other kinds, clients or options there is {@link MultiLock.of}.
   *
   * ```ts
   * await client.multiLock(['account:1', 'account:2']).using(async (signal, lease) => {
   *   await transfer({ signal, fences: lease.fencingTokens })
   * })
   * ```
   */
  multiLock(names: readonly LockName[], options?: LockOptions): MultiLock {
    if (!Array.isArray(names)) {
      throw invalid('describe locks', "the names must be an array such as ['account:1', 'account:2']")
    }
    return MultiLock.of(...names.map((name: LockName) => this.lock(name, options)))
  }

  #make(kind: Kind, given: LockName, options: LockOptions | undefined): Lock {
    const name = lockName(given, 'describe a lock')
    const values = options === undefined ? undefined : lockValues(options, printable(name))
    return new Lock(this.#client, kind, name, values)
  }

  /**
   * The state of the lock of this name, of any kind; `null` when it is free. One round trip, and
   * one more where it is held, of a semaphore two.
   *
   * It is meant for dashboards: the answer may be outdated when it arrives.
   *
   * @throws {WrongKindError} when the key is not a lock
   */
  async inspect(name: LockName): Promise<Inspection | null> {
    const checked = lockName(name, 'inspect')
    const seen = resultOf(
      await pump.call(
        (call) => bridge.inspect(call, this.#client, checked),
        (_code, _first, _second, call) => bridge.takeInspected(call),
      ),
    )
    return seen === null ? null : inspectionOf(seen)
  }

  /**
   * The locks whose names match `pattern`, about `limit` of them at a time, whoever holds them.
   *
   * The pattern is the server's own: `*`, `?`, `[abc]`, `[^a-z]`, and `\\` before a character that stands for itself. Leave
   * out `cursor` for the first page, and give the `next` of the page before for each further one; {@link Client.listing} does
   * that.
   *
   * What counts as a lock: one of this library, one of Redisson, and a string of at most 128 bytes with a time to live, as
   * any `SET NX PX` client writes it; `inspection.origin` says which. A cached value may look like the last, so choose the
   * pattern.
   *
   * For people and dashboards. A lock that stands from the first page to the last is told, perhaps twice; one that comes or
   * goes meanwhile may be missed. The server looks at 100 keys at most in one step, whatever it holds.
   */
  async list(pattern: LockName = '*', options?: ListOptions): Promise<LockPage> {
    const checked = lockName(pattern, 'list', 'pattern')
    const { limit, cursor } = listValues(options)
    const page = resultOf(
      await pump.call(
        (call) => bridge.list(call, this.#client, checked, limit, cursor),
        (_code, _first, _second, call) => bridge.takePage(call),
      ),
    )
    const entries = (page?.entries ?? []).map(({ name, seen, waiting }) => {
      return { name, inspection: inspectionOf(seen), waiting: waiting ?? null }
    })
    return { entries, next: page?.next ?? null }
  }

  /** All locks whose names match `pattern`, one after the other: the pages of {@link Client.list}. For `for await`. */
  async *listing(pattern: LockName = '*'): AsyncGenerator<LockEntry, void, undefined> {
    let cursor: string | null = null
    do {
      const page: LockPage = await this.list(pattern, cursor === null ? undefined : { cursor })
      yield* page.entries
      cursor = page.next
    } while (cursor !== null)
  }

  /**
   * Releases the lock of this name without its holder, and wakes a waiter. True when it was held.
   *
   * It deletes a lock of this library, one of Redisson, or a string with a time to live (with `{ foreign: true }` also one
   * without); otherwise it rejects with `WrongKind` and leaves the key untouched.
   *
   * The former holder detects it at its next renewal. Until then its lease still counts as held, so two holders may work at
   * the same time. The next fencing token is higher, so a resource that checks tokens stays safe. It is meant for operators
   * in an emergency, not for programs.
   */
  async forceRelease(name: LockName, options?: ForceReleaseOptions): Promise<boolean> {
    const checked = lockName(name, 'force_release')
    const foreign = foreignToo(options, 'force_release')
    const begin = (call: number) => bridge.forceRelease(call, this.#client, checked, foreign)
    return resultOf(await pump.call(begin, (_, flag) => flag === 1))
  }

  /** Queries the server: version, fencing grade, and settings that can break locks. */
  async check(): Promise<Facts> {
    const facts = resultOf(
      await pump.call(
        (call) => bridge.check(call, this.#client),
        (_code, _first, _second, call) => bridge.takeFacts(call),
      ),
    )
    return facts as Facts
  }

  /**
   * Looks at the servers of this client step by step, and tells which step fails and what to do: name, TCP, TLS, user,
   * database, role; version, persistence, eviction, replicas; the clock against ours, the round trip, a proxy in between;
   * each permission, one by one; the members of a majority, Sentinels, the slots of a cluster; the grade of fencing tokens,
   * and why.
   *
   * `name` is what the names of locks begin with that this user may lock (`app:`), since permissions are tried on such a
   * name; the client's prefix comes before it. Nothing is changed on the server. It takes some seconds at most where
   * everything answers.
   *
   * ```ts
   * const { findings } = await client.diagnose('app:')
   * for (const { severity, step, detail, todo } of findings) console.log(severity, step, detail, todo)
   * ```
   *
   * What fails is a finding, not an error; it rejects only for what concerns the client, such as
   * {@link ClientClosedError}.
   */
  async diagnose(name: LockName = ''): Promise<Diagnosis> {
    const checked = lockName(name, 'diagnose')
    const found = resultOf(
      await pump.call(
        (call) => bridge.diagnose(call, this.#client, checked),
        (_code, _first, _second, call) => bridge.takeDiagnosis(call),
      ),
    )
    return diagnosisOf(found)
  }

  /** Counters and histograms of this client. No I/O. */
  stats(): Stats {
    return this.#client.stats() as unknown as Stats
  }

  /**
   * Releases what is held, waits for clean-up (at most `closeTimeout`, 1 s), and ends background work. Idempotent.
   *
   * Waiting acquires end with {@link ClientClosedError}, and so does every later call but release.
   */
  async close(): Promise<void> {
    resultOf(
      await pump.call(
        (call) => bridge.closeClient(call, this.#client),
        () => undefined,
      ),
    )
  }

  /** The same as {@link Client.close}, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

function inspectionOf(seen: NativeInspection): Inspection {
  const { owner, fencingToken } = seen
  return {
    kind: seen.kind as Kind,
    origin: seen.origin as Origin,
    owner: holderOf(owner),
    foreignHolder: seen.foreignHolder ?? null,
    holdCount: seen.holdCount,
    ttlLeft: seen.ttlLeft ?? null,
    fencingToken: fencingToken ?? null,
    permits: seen.permits ?? null,
    free: seen.free ?? null,
    waiting: seen.waiting ?? null,
    waiters: seen.waiters.map(({ client, since }) => ({ client: holderOf(client), since: new Date(since) })),
  }
}

function holderOf(seen: NativeInspection['owner']): Holder | null {
  return seen === undefined ? null : { ...seen, since: new Date(seen.since) }
}

type Given = [Address | undefined, ClientOptions | undefined]

/** Tells the arguments apart: the address may be left out. */
function addressAndOptions(first: Address | ClientOptions | undefined, second: ClientOptions | undefined): Given {
  if (typeof first === 'object' && first !== null && !Array.isArray(first)) {
    if (second !== undefined) throw invalid('make a client', 'the address comes first, and then the options')
    return [undefined, first as ClientOptions]
  }
  return [first as Address | undefined, second]
}

function addressText(address: unknown): string {
  if (address === undefined) return ''
  const parts = Array.isArray(address) ? address : [address]
  for (const part of parts) {
    if (typeof part !== 'string') {
      throw invalid('make a client', `the address must be a string such as redis://localhost, not ${typeof part}`)
    }
  }
  return parts.join(' ')
}

const warned = new Set<string>()

function warnOnce(text: string): void {
  if (warned.has(text)) return
  warned.add(text)
  warn(text, 'ONELOCK_SERVER')
}
