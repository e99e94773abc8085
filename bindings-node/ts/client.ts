// The client: where the locks are kept, and the defaults of every lock made from it.

import './polyfill'

import { invalid, toError } from './errors'
import type { Kind } from './lease'
import { Lock } from './lock'
import type { NativeClient } from './native'
import {
  type ClientOptions,
  type CredentialsProvider,
  clientValues,
  type ForceReleaseOptions,
  foreignToo,
  type Grade,
  type LockName,
  type LockOptions,
  lockName,
  lockValues,
  printable,
} from './options'
import { granted, pump, session, warn, watchExit } from './pump'

/** Where the server is: an address, or several for independent servers. */
export type Address = string | readonly string[]

/** What is known about the server, from {@link Client.check}. */
export interface Facts {
  /** How strong its fencing tokens are; `None` for a client without fencing. */
  grade: Grade
  /** What breaks locks on it, each a sentence for people with the setting to change. */
  warnings: string[]
  /** Those of them that endanger exclusion and were not accepted: they are logged as warnings. */
  dangers: string[]
  /** The server's name and version for people, such as `valkey 9.1.0`. */
  server: string
}

/** Who holds a lock, for people. */
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

/** What stands under a name, from {@link Client.inspect}. */
export interface Inspection {
  /** The kind of lock that stands there. */
  kind: Kind
  /** Who holds it, when the holder is an `inspectable` client of this library. */
  owner: Holder | null
  /** How often the holder has entered. */
  holdCount: number
  /** What is left of the holder's time to live on the server, in ms; `null` for a foreign key without one. */
  ttlLeft: number | null
  /** The fencing token of the present hold; `null` for a holder without one. */
  fencingToken: number | null
}

/** How long things took, in milliseconds. Quantiles are upper bounds, at most twice too high. */
export interface Durations {
  /** How many there were. */
  count: number
  /** All of them together. */
  sum: number
  /** Half of them took no longer. */
  p50: number
  /** Nine of ten took no longer. */
  p90: number
  /** 99 of 100 took no longer. */
  p99: number
}

/** What a client has done since it was made, from {@link Client.stats}. */
export interface Stats {
  /** Leases held now. */
  held: number
  /** Acquires waiting now. */
  waiting: number
  /** Acquires that were granted, re-entries included. */
  acquired: number
  /** Tries that found the lock busy. */
  busy: number
  /** Acquires whose wait was used up. */
  timeouts: number
  /** Acquires that were abandoned by their caller. */
  cancelled: number
  /** Acquires that failed for another reason. */
  failed: number
  /** Leases given back by their holder. */
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
 * never keeps the process alive. What is still held when the process ends is given back then.
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
   * | `memory://` | inside the client, for unit tests; `memory://NAME` is shared within the process |
   * | (empty) | the address in `$ONELOCK_URL` |
   *
   * An array of addresses is Redlock over these servers.
   *
   * @throws {InvalidArgumentError} names the option or the part of the address that is wrong
   */
  constructor(address?: Address, options?: ClientOptions)
  constructor(options: ClientOptions)
  constructor(first?: Address | ClientOptions, second?: ClientOptions) {
    const [address, options] = sorted(first, second)
    const values = clientValues(options)
    if (values.credentials !== undefined) {
      values.credentials = pump.providers.add(values.credentials as CredentialsProvider)
    }
    const client = session.open(addressText(address), values)
    if (client === null) throw toError(session.takeFailure(0))
    this.#client = client
    watchExit()
  }

  /**
   * A client that is connected and checked. What endangers exclusion on that server becomes a process warning, once.
   *
   * @throws {OnelockError} what the server says: `ERR_ONELOCK_UNAVAILABLE`, `ERR_ONELOCK_AUTH_FAILED` ...
   */
  static connect(address?: Address, options?: ClientOptions): Promise<Client>
  static connect(options: ClientOptions): Promise<Client>
  static async connect(first?: Address | ClientOptions, second?: ClientOptions): Promise<Client> {
    const client = new Client(first as Address, second)
    const { server, dangers } = await client.check().catch(async (error) => {
      // nobody gets this client: its connection goes now, not when it is collected
      await client.close()
      throw error
    })
    for (const danger of dangers) warnOnce(`${server}: ${danger}`)
    return client
  }

  /**
   * The lock of this name: one holder at a time, among everybody who uses the same server, prefix and name. No I/O.
   *
   * A name has 1 to 512 bytes. Not re-entrant: who acquires it twice waits for himself. On the server it is a string
   * that any `SET NX PX` client respects.
   */
  lock(name: LockName, options?: LockOptions): Lock {
    return this.#make('lock', name, options)
  }

  /**
   * The reentrant lock of this name: its holder may enter again. Who that is, `owner` says, or the async context of
   * {@link Lock.using}; every other acquire is its own. No I/O.
   *
   * On the server it is a hash that Redisson's `RLock` shares.
   */
  reentrantLock(name: LockName, options?: LockOptions): Lock {
    return this.#make('reentrant_lock', name, options)
  }

  #make(kind: Kind, given: LockName, options: LockOptions | undefined): Lock {
    const name = lockName(given, 'describe a lock')
    const values = options === undefined ? undefined : lockValues(options, printable(name))
    return new Lock(this.#client, kind, name, values)
  }

  /**
   * Who holds the lock of this name, whatever its kind; `null` when nobody does. One round trip.
   *
   * For people and dashboards: when the answer arrives it may be old.
   *
   * @throws {WrongKindError} when something that is no lock stands there
   */
  async inspect(name: LockName): Promise<Inspection | null> {
    const checked = lockName(name, 'inspect')
    const seen = granted(
      await pump.call(
        (call) => session.inspect(call, this.#client, checked),
        (_code, _first, _second, call) => session.takeSeen(call),
      ),
    )
    if (seen === null) return null
    const { owner, fencingToken } = seen
    return {
      kind: seen.kind as Kind,
      owner: owner === undefined ? null : { ...owner, since: new Date(owner.since) },
      holdCount: seen.holdCount,
      ttlLeft: seen.ttlLeft ?? null,
      fencingToken: fencingToken ?? null,
    }
  }

  /**
   * Takes the lock of this name away from whoever holds it, and wakes a waiter. True when there was one.
   *
   * Only what is recognisably a lock is deleted: one of this library, one of Redisson, or a string with a time to live
   * (with `{ foreign: true }` one without, too); else it rejects with `WrongKind` and leaves it untouched.
   *
   * The old holder learns of it at its next renewal; until then it believes in its lease, and two may be at work. The
   * next fencing token is higher, so a resource that checks tokens stays safe. For people in an emergency, not for
   * programs.
   */
  async forceRelease(name: LockName, options?: ForceReleaseOptions): Promise<boolean> {
    const checked = lockName(name, 'force_release')
    const foreign = foreignToo(options, 'force_release')
    const begin = (call: number) => session.forceRelease(call, this.#client, checked, foreign)
    return granted(await pump.call(begin, (_, flag) => flag === 1))
  }

  /** Looks at the server: its version, its fencing grade, and what breaks locks on it. */
  async check(): Promise<Facts> {
    const facts = granted(
      await pump.call(
        (call) => session.check(call, this.#client),
        (_code, _first, _second, call) => session.takeFacts(call),
      ),
    )
    return facts as Facts
  }

  /** What this client has done so far. No I/O. */
  stats(): Stats {
    return this.#client.stats() as unknown as Stats
  }

  /**
   * Gives back what is held, waits for clean-up (at most `closeTimeout`, 1 s), and ends background work. Idempotent.
   *
   * Waiting acquires end with {@link ClientClosedError}, and so does every later call but release.
   */
  async close(): Promise<void> {
    granted(
      await pump.call(
        (call) => session.closeClient(call, this.#client),
        () => undefined,
      ),
    )
  }

  /** The same as {@link Client.close}, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

type Given = [Address | undefined, ClientOptions | undefined]

/** Which of the arguments is which: the address may be left out. */
function sorted(first: Address | ClientOptions | undefined, second: ClientOptions | undefined): Given {
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
