// The way of every call to the native module and back: a call gets a number, and what became of it is fetched in batches
// when the native module rings.

import { forget, onAbort } from './abort'
import { ASKED, FAILED, GRANTED, JEOPARDY, LOST, RECORD, SAID, UNASKED } from './codes'
import { Providers, reasonOf } from './credentials'
import { type OnelockError, toError } from './errors'
import { type Failure, hasLibuv, native, type Session } from './native'

/** What became of a call that failed. Made into an error where the caller's own stack is known. */
export class Refusal {
  constructor(readonly failure: Failure | null) {}
}

/** The result of a call, or its error thrown. */
export function granted<T>(outcome: T | Refusal): T {
  if (!(outcome instanceof Refusal)) return outcome
  throw raised(outcome)
}

function raised(refusal: Refusal): OnelockError {
  const error = toError(refusal.failure)
  Error.captureStackTrace(error, granted)
  return error
}

/** Hears what happens to one lease. */
export interface Listener {
  heardLoss(reason: number): void
  heardJeopardy(): void
}

/** Takes a log line: its level as a number, and its text. */
type Logger = (level: number, text: string) => void

type Read<T> = (code: number, first: number, second: number, call: number) => T
type Settle = (code: number, first: number, second: number, call: number) => void

/** How many records are fetched at once. */
const BATCH = 64
const LAST_CALL = 0xffff_ffff

/**
 * The calls under way. One that is alone is kept beside the map: a map that gets one entry and loses it again, time after
 * time, is made anew each time.
 */
class Calls {
  #alone = 0
  #settle: Settle | undefined
  readonly #others = new Map<number, Settle>()

  has(call: number): boolean {
    return this.#alone === call || this.#others.has(call)
  }

  add(call: number, settle: Settle): void {
    if (this.#alone === 0) {
      this.#alone = call
      this.#settle = settle
    } else {
      this.#others.set(call, settle)
    }
  }

  /** Removes it; `undefined` when it is not there. */
  take(call: number): Settle | undefined {
    if (this.#alone === call) {
      const settle = this.#settle
      this.#alone = 0
      this.#settle = undefined
      return settle
    }
    const settle = this.#others.get(call)
    this.#others.delete(call)
    return settle
  }
}

class Pump {
  readonly session: Session
  readonly #calls = new Calls()
  /** Weak: hearing about a lease does not keep it from being collected. */
  readonly #listeners = new Map<number, WeakRef<Listener>>()
  readonly #records = new Float64Array(RECORD * BATCH)
  /** Who is asked for the credentials of new connections. */
  readonly providers = new Providers()
  #last = 0
  #logger: Logger | undefined

  constructor() {
    this.session = new native.Session((about, code, first, second) => {
      if (about === undefined) this.#fetch()
      else this.#dispatch(about, code!, first!, second!)
    }, hasLibuv)
  }

  /**
   * Begins a call, and reads its result. With a signal exactly one of two things happens: the result is handed out, or
   * the promise rejects with the signal's reason and the native module undoes what it may have done.
   */
  call<T>(begin: (call: number) => void, read: Read<T>, signal?: AbortSignal): Promise<T | Refusal> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const call = this.#next()
      const settle: Settle = (code, first, second) => {
        resolve(code === FAILED ? new Refusal(this.session.takeFailure(call)) : read(code, first, second, call))
      }
      if (signal === undefined) {
        this.#begin(call, begin, settle)
        return
      }
      const stop = () => {
        if (this.#calls.take(call) === undefined) return
        this.session.cancel(call)
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
      // it could not begin: the machine is at a limit
      const failure = this.session.takeFailure(call)
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

  /** Where log lines go, up to this level. */
  log(level: number, logger: Logger | undefined): void {
    this.#logger = logger
    this.session.listen(logger === undefined ? 0 : level)
  }

  #fetch(): void {
    const records = this.#records
    for (;;) {
      const count = this.session.fetch(records)
      for (let at = 0; at < count * RECORD; at += RECORD) {
        this.#dispatch(records[at]!, records[at + 1]!, records[at + 2]!, records[at + 3]!)
      }
      if (count < BATCH) return
    }
  }

  #dispatch(about: number, code: number, first: number, second: number): void {
    if (code === LOST) {
      this.#listeners.get(about)?.deref()?.heardLoss(first)
    } else if (code === JEOPARDY) {
      this.#listeners.get(about)?.deref()?.heardJeopardy()
    } else if (code === SAID) {
      this.#logger?.(first, this.session.takeLine() ?? '')
    } else if (code === ASKED) {
      void this.#ask(about, first)
    } else if (code === UNASKED) {
      this.providers.remove(about)
    } else {
      const settle = this.#calls.take(about)
      // cancelled by a listener that ran earlier in this batch
      if (settle === undefined) this.#drop(code, first, about)
      else settle(code, first, second, about)
    }
  }

  /** Never rejects: whatever goes wrong is the answer. */
  async #ask(provider: number, request: number): Promise<void> {
    try {
      const { username, password } = await this.providers.ask(provider)
      this.session.answer(request, username, password)
    } catch (thrown) {
      this.session.refuse(request, reasonOf(thrown))
    }
  }

  #drop(code: number, first: number, call: number): void {
    if (code === GRANTED) this.session.forget(first)
    else if (code === FAILED) this.session.takeFailure(call)
  }
}

/** What this thread has of it. */
export const pump = new Pump()
export const session: Session = pump.session

let watching = false
const before: (() => void)[] = []

/** At the end of the process what is held is given back. */
export function watchExit(): void {
  if (watching) return
  watching = true
  process.on('exit', giveBack)
}

/** Done before anything is given back at the end of the process. */
export function beforeGivingBack(act: () => void): void {
  before.push(act)
}

/** Gives back everything and waits for it, a second at most. */
export function giveBack(): void {
  for (const act of before) act()
  session.close()
}

/** Tells people something that harms nothing. */
export function warn(message: string, code: string): void {
  process.emitWarning(message, { type: 'OnelockWarning', code })
}
