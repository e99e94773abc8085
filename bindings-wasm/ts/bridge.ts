// The functions of a native module, over the WebAssembly module.

import { bytesOf, encodeOptions, joined, type Module, word } from './module'
import type { Bridge, Failure, Name, Native, NativeClient, Values } from './native_types'

const INTERNAL = 'run the WebAssembly module'

/** What a call fails with after the module has ended by a defect. */
function defectFailure(what: string): Failure {
  const detail = `it has ended by a defect: ${what}`
  return { kind: 'Internal', message: `${INTERNAL}: ${detail}`, tried: INTERNAL, detail, causes: [] }
}

/** Names of bytes come as arrays of numbers. */
function withName<T extends { name: unknown }>(entry: T): T {
  return Array.isArray(entry.name) ? { ...entry, name: Uint8Array.from(entry.name as number[]) } : entry
}

type Wakeup = (about?: number, code?: number, first?: number, second?: number) => void

/** The number of a record of a call that failed; see `codes.ts`. */
const FAILED = 7

/** The environment variable whose address is used when an empty one is given. */
const URL_VARIABLE = 'ONELOCK_URL'

/** The functions of a native module, over this one. */
export function nativeOver(wasm: Module, environment: (name: string) => string = () => ''): Native {
  const functions = wasm.exports

  /** Runs a function of the module; a defect ends all of it. */
  function run<T>(act: () => T): T {
    if (wasm.defect !== undefined) throw new Error(`${INTERNAL}: it has ended by a defect: ${wasm.defect}`)
    try {
      return act()
    } catch (error) {
      wasm.fail(error)
      throw new Error(`${INTERNAL}: it has ended by a defect: ${wasm.defect}`, { cause: error })
    }
  }

  /** Writes arguments one behind the other; returns their lengths. */
  function put(first: Uint8Array, second?: Uint8Array): void {
    const length = first.length + (second?.length ?? 0)
    const at = functions.onelock_input(length)
    wasm.bytes.set(first, at)
    if (second !== undefined) wasm.bytes.set(second, at + first.length)
  }

  class WasmClient implements NativeClient {
    constructor(readonly number: number) {
      dropped.register(this, number)
    }

    stats(): unknown {
      return run(() => wasm.object(functions.onelock_stats(this.number)))
    }
  }

  const dropped = new FinalizationRegistry<number>((number) => {
    if (wasm.defect !== undefined) return
    run(() => functions.onelock_drop_client(number))
    wasm.soon()
  })

  function numberOf(client: NativeClient): number {
    return (client as WasmClient).number
  }

  class WasmBridge implements Bridge {
    readonly #calls = new Set<number>()
    readonly #failures = new Map<number, Failure>()

    constructor(wakeup: Wakeup) {
      wasm.onMessages = wakeup
      wasm.onDefect = (what) => {
        const calls = [...this.#calls]
        this.#calls.clear()
        wasm.keepAlive(false)
        for (const call of calls) {
          this.#failures.set(call, defectFailure(what))
          // whoever called is still running
          queueMicrotask(() => wakeup(call, FAILED, 0, 0))
        }
      }
    }

    #begin(call: number, start: () => number): number {
      if (this.#calls.size === 0) wasm.keepAlive(true)
      this.#calls.add(call)
      let told: number
      try {
        told = run(start)
      } catch (error) {
        this.#ended(call)
        throw error
      }
      // the caller has to return first
      if ((told & 1) !== 0) wasm.soon()
      return told
    }

    #ended(call: number): void {
      if (this.#calls.delete(call) && this.#calls.size === 0) wasm.keepAlive(false)
    }

    close(): void {
      if (wasm.defect !== undefined) return
      run(() => functions.onelock_close())
      wasm.flush()
    }

    fetch(records: Float64Array): number {
      if (wasm.defect !== undefined) return 0
      const count = run(() => functions.onelock_fetch())
      const at = functions.onelock_records() >> 3
      records.set(new Float64Array(functions.memory.buffer).subarray(at, at + count * 4))
      for (let record = 0; record < count * 4; record += 4) {
        const code = records[record + 1]!
        // losses, log lines and credentials are no results of calls
        if (code < 8 || code > 12) this.#ended(records[record]!)
      }
      return count
    }

    open(url: string, options: Values): NativeClient | null {
      return run(() => {
        const [first, second] = [bytesOf(url.trim() === '' ? environment(URL_VARIABLE) : url), encodeOptions(options)]
        put(first, second)
        const number = functions.onelock_open(first.length, second.length)
        return number === 0 ? null : new WasmClient(number)
      })
    }

    check(call: number, client: NativeClient): void {
      this.#begin(call, () => functions.onelock_check(call, numberOf(client)))
    }

    diagnose(call: number, client: NativeClient, name: Name): void {
      this.#begin(call, () => functions.onelock_diagnose(call, numberOf(client), wasm.write(name)))
    }

    closeClient(call: number, client: NativeClient): void {
      this.#begin(call, () => functions.onelock_close_client(call, numberOf(client)))
    }

    inspect(call: number, client: NativeClient, name: Name): void {
      this.#begin(call, () => functions.onelock_inspect(call, numberOf(client), wasm.write(name)))
    }

    list(call: number, client: NativeClient, pattern: Name, limit: number, cursor?: string): void {
      this.#begin(call, () => {
        const [first, second] = [bytesOf(pattern), cursor === undefined ? undefined : bytesOf(cursor)]
        put(first, second)
        return functions.onelock_list(call, numberOf(client), first.length, limit, second?.length ?? -1)
      })
    }

    forceRelease(call: number, client: NativeClient, name: Name, foreign: boolean): void {
      this.#begin(call, () =>
        functions.onelock_force_release(call, numberOf(client), wasm.write(name), foreign ? 1 : 0),
      )
    }

    acquire(call: number, client: NativeClient, kind: number, name: Name, wait: number, options?: Values): void {
      this.#begin(call, () => {
        const [first, second] = [bytesOf(name), encodeOptions(options)]
        put(first, second)
        return functions.onelock_acquire(call, numberOf(client), kind, wait, first.length, second.length)
      })
    }

    acquireMany(
      call: number,
      clients: NativeClient[],
      kinds: number[],
      names: Name[],
      wait: number,
      options: Values[],
    ): void {
      this.#begin(call, () => {
        const members = clients.flatMap((client, at) => {
          const [name, described] = [bytesOf(names[at]!), encodeOptions(options[at])]
          return [word(numberOf(client)), word(kinds[at]!), word(name.length), name, word(described.length), described]
        })
        return functions.onelock_acquire_many(call, wait, wasm.write(joined(members)))
      })
    }

    attach(call: number, client: NativeClient, kind: number, name: Name, proof: string, options?: Values): void {
      this.#begin(call, () => {
        const [first, second, third] = [bytesOf(proof), bytesOf(name), encodeOptions(options)]
        put(joined([first, second, third]))
        return functions.onelock_attach(call, numberOf(client), kind, first.length, second.length, third.length)
      })
    }

    isLocked(call: number, client: NativeClient, kind: number, name: Name, options?: Values): void {
      this.#begin(call, () => {
        const [first, second] = [bytesOf(name), encodeOptions(options)]
        put(first, second)
        return functions.onelock_is_locked(call, numberOf(client), kind, first.length, second.length)
      })
    }

    permits(call: number, client: NativeClient, kind: number, name: Name, options?: Values): void {
      this.#begin(call, () => {
        const [first, second] = [bytesOf(name), encodeOptions(options)]
        put(first, second)
        return functions.onelock_permits(call, numberOf(client), kind, first.length, second.length)
      })
    }

    setPermits(call: number, client: NativeClient, kind: number, name: Name, total: number, options?: Values): void {
      this.#begin(call, () => {
        const [first, second] = [bytesOf(name), encodeOptions(options)]
        put(first, second)
        return functions.onelock_set_permits(call, numberOf(client), kind, total, first.length, second.length)
      })
    }

    cancel(call: number): boolean {
      this.#ended(call)
      if (wasm.defect !== undefined) return false
      const known = run(() => functions.onelock_cancel(call)) !== 0
      wasm.soon()
      return known
    }

    extend(call: number, lease: number, ttl: number): void {
      this.#begin(call, () => functions.onelock_extend(call, lease, ttl))
    }

    downgrade(call: number, lease: number): void {
      this.#begin(call, () => functions.onelock_downgrade(call, lease))
    }

    release(call: number, lease: number): number {
      return this.#begin(call, () => functions.onelock_release(call, lease)) >> 1
    }

    detach(lease: number): string | null {
      const proof = run(() => wasm.result(functions.onelock_detach(lease)))
      wasm.soon()
      return proof
    }

    forget(lease: number): boolean {
      if (wasm.defect !== undefined) return false
      const held = run(() => functions.onelock_forget(lease)) !== 0
      wasm.soon()
      return held
    }

    writes(lease: number): boolean {
      return run(() => functions.onelock_writes(lease)) !== 0
    }

    fencingTokenOf(lease: number, name: Name): number {
      return run(() => functions.onelock_fencing_token_of(lease, wasm.write(name)))
    }

    isHeld(lease: number): boolean {
      return wasm.defect === undefined && run(() => functions.onelock_is_held(lease)) !== 0
    }

    remaining(lease: number): number {
      return wasm.defect === undefined ? run(() => functions.onelock_remaining(lease)) : 0
    }

    loss(lease: number): number {
      return run(() => functions.onelock_loss(lease))
    }

    holdCount(lease: number): number {
      return run(() => functions.onelock_hold_count(lease))
    }

    fencingGrade(lease: number): string {
      return run(() => wasm.result(functions.onelock_fencing_grade(lease))) ?? 'None'
    }

    watchLoss(lease: number): void {
      run(() => functions.onelock_watch_loss(lease))
    }

    watchJeopardy(lease: number): void {
      run(() => functions.onelock_watch_jeopardy(lease))
    }

    setLogLevel(level: number): void {
      run(() => functions.onelock_set_log_level(level))
    }

    answer(request: number, username: string | undefined, password: string): void {
      run(() => {
        const [first, second] = [username === undefined ? undefined : bytesOf(username), bytesOf(password)]
        put(joined([first ?? new Uint8Array(0), second]))
        functions.onelock_answer(request, first?.length ?? -1, second.length)
      })
      wasm.soon()
    }

    refuse(request: number, reason: string): void {
      run(() => functions.onelock_refuse(request, wasm.write(reason)))
      wasm.soon()
    }

    takeLogLine(): string | null {
      return run(() => wasm.result(functions.onelock_take_log_line()))
    }

    takeFailure(payload: number): Failure | null {
      const ours = this.#failures.get(payload)
      this.#failures.delete(payload)
      return ours ?? this.#take(payload)
    }

    takeInspected(payload: number): ReturnType<Bridge['takeInspected']> {
      return this.#take(payload)
    }

    takePage(payload: number): ReturnType<Bridge['takePage']> {
      const page: ReturnType<Bridge['takePage']> = this.#take(payload)
      return page === null ? null : { ...page, entries: page.entries.map(withName) }
    }

    takeDiagnosis(payload: number): ReturnType<Bridge['takeDiagnosis']> {
      return this.#take(payload)
    }

    takeFacts(payload: number): ReturnType<Bridge['takeFacts']> {
      return this.#take(payload)
    }

    #take<T>(payload: number): T | null {
      if (wasm.defect !== undefined) return null
      return run(() => wasm.object<T>(functions.onelock_take(payload)))
    }
  }

  const droppedGates = new FinalizationRegistry<number>((number) => {
    if (wasm.defect === undefined) run(() => functions.onelock_gate_drop(number))
  })

  class WasmGate {
    readonly #number: number

    constructor(highest: number) {
      this.#number = run(() => functions.onelock_gate(highest))
      droppedGates.register(this, this.#number)
    }

    admit(token: number): boolean {
      return run(() => functions.onelock_gate_admit(this.#number, token)) !== 0
    }

    highest(): number {
      return run(() => functions.onelock_gate_highest(this.#number))
    }
  }

  return {
    Bridge: WasmBridge,
    FenceGate: WasmGate,
    kinds: () => run(() => wasm.object(functions.onelock_kinds())) ?? [],
    version: () => run(() => wasm.result(functions.onelock_version())) ?? '',
    lossFailure: (name, reason) =>
      run(() => wasm.object<Failure>(functions.onelock_loss_failure(wasm.write(name), reason))) ??
      defectFailure('it told no loss'),
    fenceGuardScript: () => run(() => wasm.result(functions.onelock_fence_guard_script())) ?? '',
  }
}
