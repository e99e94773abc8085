// Starts calls in the native module and settles their promises: a call has a number, and results are fetched in batches
// after a wake-up by the native module.

import { forget, onAbort } from './abort'
import { CREDENTIALS_WANTED, FAILED, GRANTED, JEOPARDY, LOG_LINE, LOST, PROVIDER_DROPPED, RECORD } from './codes'
import { Providers, reasonOf } from './credentials'
import { type OnelockError, toError } from './errors'
import { type Bridge, type Failure, hasLibuv, native } from './native'

/** A call that failed. It is made into an error where the caller's own stack is known. */
export class Refusal {
  constructor(readonly failure: Failure | null) {}
}

/** Returns the result of a call, or throws its error. */
export function resultOf<T>(outcome: T | Refusal): T {
  if (!(outcome instanceof Refusal)) return outcome
  throw raised(outcome)
}

function raised(refusal: Refusal): OnelockError {
  const error = toError(refusal.failure)
  Error.captureStackTrace(error, resultOf)
  return error
}

/** Receives the events of one lease. */
export interface Listener {
  onLoss(reason: number): void
  onJeopardy(): void
}

/** Takes a log line: its level as a number, and its text. */
type Logger = (level: number, text: string) => void

type Read<T> = (code: number, first: number, second: number, call: number) => T
type Settle = (code: number, first: number, second: number, call: number) => void

/** How many records are fetched at once. */
const BATCH = 64
const LAST_CALL = 0xffff_ffff

/**
 * The calls in progress. A single call is kept beside the map, because a map that repeatedly gets one entry and loses it is
 * rebuilt each time.
 */
class Calls {
  #single = 0
  #settle: Settle | undefined
  readonly #others = new Map<number, Settle>()

  has(call: number): boolean {
    return this.#single === call || this.#others.has(call)
  }

  add(call: number, settle: Settle): void {
    if (this.#single === 0) {
      this.#single = call
      this.#settle = settle
    } else {
      this.#others.set(call, settle)
    }
  }

  /** Removes and returns it; `undefined` when there is no such call. */
  take(call: number): Settle | undefined {
    if (this.#single === call) {
      const settle = this.#settle
      this.#single = 0
      this.#settle = undefined
      return settle
    }
    const settle = this.#others.get(call)
    this.#others.delete(call)
    return settle
  }
}

class Pump {
  readonly bridge: Bridge
  readonly #calls = new Calls()
  /** Weak: a listener may be collected. */
  readonly #listeners = new Map<number, WeakRef<Listener>>()
  readonly #records = new Float64Array(RECORD * BATCH)
  /** The functions that give credentials of new connections. */
  readonly providers = new Providers()
  #last = 0
  #logger: Logger | undefined

  constructor() {
    this.bridge = new native.Bridge((about, code, first, second) => {
      if (about === undefined) this.#fetch()
      else this.#dispatch(about, code!, first!, second!)
    }, hasLibuv)
  }

  /**
   * Starts a call, and reads its result. With a signal, either the promise resolves with the result, or it rejects with the
   * reason of the signal and the native module undoes the call.
   */
  call<T>(begin: (call: number) => void, read: Read<T>, signal?: AbortSignal): Promise<T | Refusal> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const call = this.#next()
      const settle: Settle = (code, first, second) => {
        resolve(code === FAILED ? new Refusal(this.bridge.takeFailure(call)) : read(code, first, second, call))
      }
      if (signal === undefined) {
        this.#begin(call, begin, settle)
        return
      }
      const stop = () => {
        if (this.#calls.take(call) === undefined) return
        this.bridge.cancel(call)
        reject(signal.reason)
      }
      onAbort(signal, stop)
      const settled: Settle = (code, first, second) => {
        forget(signal, stop)
        settle(code, first, second, call)
      }
      try {
        this.#begin(call, begin, settled)
      } catch (error) {
        forget(signal, stop)
        throw error
      }
    })
  }

  #begin(call: number, begin: (call: number) => void, settle: Settle): void {
    this.#calls.add(call, settle)
    try {
      begin(call)
    } catch (error) {
      this.#calls.take(call)
      // the call was not started: the machine is at a limit
      const failure = this.bridge.takeFailure(call)
      throw failure === null ? error : toError(failure)
    }
  }

  #next(): number {
    do {
      this.#last = this.#last === LAST_CALL ? 1 : this.#last + 1
    } while (this.#calls.has(this.#last))
    return this.#last
  }

  listen(lease: number, listener: Listener): void {
    this.#listeners.set(lease, new WeakRef(listener))
  }

  unlisten(lease: number): void {
    this.#listeners.delete(lease)
  }

  /** Sets the function that takes log lines, up to this level. */
  log(level: number, logger: Logger | undefined): void {
    this.#logger = logger
    this.bridge.setLogLevel(logger === undefined ? 0 : level)
  }

  #fetch(): void {
    const records = this.#records
    for (;;) {
      const count = this.bridge.fetch(records)
      for (let at = 0; at < count * RECORD; at += RECORD) {
        this.#dispatch(records[at]!, records[at + 1]!, records[at + 2]!, records[at + 3]!)
      }
      if (count < BATCH) return
    }
  }

  #dispatch(about: number, code: number, first: number, second: number): void {
    if (code === LOST) {
      this.#listeners.get(about)?.deref()?.onLoss(first)
    } else if (code === JEOPARDY) {
      this.#listeners.get(about)?.deref()?.onJeopardy()
    } else if (code === LOG_LINE) {
      this.#logger?.(first, this.bridge.takeLogLine() ?? '')
    } else if (code === CREDENTIALS_WANTED) {
      void this.#ask(about, first)
    } else if (code === PROVIDER_DROPPED) {
      this.providers.remove(about)
    } else {
      const settle = this.#calls.take(about)
      // undefined: a listener that ran earlier in this batch cancelled the call
      if (settle === undefined) this.#drop(code, first, about)
      else settle(code, first, second, about)
    }
  }

  /** Never rejects: an error becomes the answer. */
  async #ask(provider: number, request: number): Promise<void> {
    try {
      const { username, password } = await this.providers.ask(provider)
      this.bridge.answer(request, username, password)
    } catch (thrown) {
      this.bridge.refuse(request, reasonOf(thrown))
    }
  }

  #drop(code: number, first: number, call: number): void {
    if (code === GRANTED) this.bridge.forget(first)
    else if (code === FAILED) this.bridge.takeFailure(call)
  }
}

/** The pump of this thread. */
export const pump = new Pump()
export const bridge: Bridge = pump.bridge

let watching = false
const before: (() => void)[] = []

/** Releases what is held at the end of the process. */
export function watchExit(): void {
  if (watching) return
  watching = true
  process.on('exit', releaseAll)
}

/** Runs `act` before {@link releaseAll}. */
export function beforeReleaseAll(act: () => void): void {
  before.push(act)
}

/** Releases everything and waits for it, at most one second. */
export function releaseAll(): void {
  for (const act of before) act()
  bridge.close()
}

/** Emits a process warning. */
export function warn(message: string, code: string): void {
  process.emitWarning(message, { type: 'OnelockWarning', code })
}
