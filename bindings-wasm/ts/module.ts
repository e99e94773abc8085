// The WebAssembly module: what it asks of the host, and what it may be asked. Only numbers cross the boundary, and bytes in its
// memory.

import { type Connection, End, type Host, type Target } from './host'

/** The functions of the module, as `bindings-wasm/src` declares them. */
export interface Exports {
  memory: WebAssembly.Memory
  onelock_start(): void
  onelock_input(length: number): number
  onelock_output(): number
  onelock_records(): number
  onelock_fetch(): number
  onelock_turn(): number
  onelock_rang(): number
  onelock_opened(connection: number): number
  onelock_received(connection: number, length: number): number
  onelock_closed(connection: number, end: number, length: number): number
  onelock_open(url: number, options: number): number
  onelock_drop_client(client: number): void
  onelock_stats(client: number): number
  onelock_check(call: number, client: number): number
  onelock_diagnose(call: number, client: number, name: number): number
  onelock_close_client(call: number, client: number): number
  onelock_inspect(call: number, client: number, name: number): number
  onelock_list(call: number, client: number, pattern: number, limit: number, cursor: number): number
  onelock_force_release(call: number, client: number, name: number, foreign: number): number
  onelock_acquire(call: number, client: number, kind: number, wait: number, name: number, options: number): number
  onelock_acquire_many(call: number, wait: number, members: number): number
  onelock_attach(call: number, client: number, kind: number, proof: number, name: number, options: number): number
  onelock_is_locked(call: number, client: number, kind: number, name: number, options: number): number
  onelock_permits(call: number, client: number, kind: number, name: number, options: number): number
  onelock_set_permits(call: number, client: number, kind: number, total: number, name: number, options: number): number
  onelock_cancel(call: number): number
  onelock_close(): void
  onelock_take(payload: number): number
  onelock_take_log_line(): number
  onelock_answer(request: number, user: number, password: number): void
  onelock_refuse(request: number, reason: number): void
  onelock_extend(call: number, lease: number, ttl: number): number
  onelock_downgrade(call: number, lease: number): number
  onelock_release(call: number, lease: number): number
  onelock_detach(lease: number): number
  onelock_forget(lease: number): number
  onelock_writes(lease: number): number
  onelock_fencing_token_of(lease: number, name: number): number
  onelock_is_held(lease: number): number
  onelock_remaining(lease: number): number
  onelock_loss(lease: number): number
  onelock_hold_count(lease: number): number
  onelock_fencing_grade(lease: number): number
  onelock_watch_loss(lease: number): void
  onelock_watch_jeopardy(lease: number): void
  onelock_set_log_level(level: number): void
  onelock_gate(highest: number): number
  onelock_gate_admit(gate: number, token: number): number
  onelock_gate_highest(gate: number): number
  onelock_gate_drop(gate: number): void
  onelock_fence_guard_script(): number
  onelock_loss_failure(name: number, reason: number): number
  onelock_kinds(): number
  onelock_version(): number
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** The module in a host. */
export class Module {
  readonly exports: Exports
  readonly #host: Host
  readonly #connections = new Map<number, Connection>()
  #bytes = new Uint8Array(0)
  #asked = false
  /** What the module said when it ended by a defect. */
  #defect: string | undefined
  /** Called when there are messages, never while the module runs. */
  onMessages: () => void = () => undefined
  /** Called when the module has ended by a defect. */
  onDefect: (what: string) => void = () => undefined

  constructor(code: WebAssembly.Module, host: Host) {
    this.#host = host
    const instance = new WebAssembly.Instance(code, { host: this.#imports() })
    this.exports = instance.exports as unknown as Exports
    this.exports.onelock_start()
  }

  /** The memory, which moves when it grows. */
  get bytes(): Uint8Array {
    if (this.#bytes.buffer !== this.exports.memory.buffer) this.#bytes = new Uint8Array(this.exports.memory.buffer)
    return this.#bytes
  }

  #imports(): WebAssembly.ModuleImports {
    const host = this.#host
    return {
      monotonic: () => host.monotonic(),
      wall: () => host.wall(),
      random: (at: number, length: number) => {
        try {
          host.random(this.bytes.subarray(at, at + length))
          return 1
        } catch {
          return 0
        }
      },
      name: (at: number, room: number) => encoder.encodeInto(host.name, this.bytes.subarray(at, at + room)).written,
      process_id: () => host.processId,
      ask_for_turn: () => this.soon(),
      set_alarm: (after: number) => host.setAlarm(after, () => this.enter((module) => module.onelock_rang())),
      dial: (connection: number, at: number, length: number) =>
        this.#dial(connection, JSON.parse(this.text(at, length))),
      write: (connection: number, at: number, length: number) => {
        this.#connections.get(connection)?.write(this.bytes.slice(at, at + length))
      },
      close: (connection: number) => {
        const known = this.#connections.get(connection)
        this.#connections.delete(connection)
        known?.close()
      },
      panicked: (at: number, length: number) => {
        this.#defect = this.text(at, length)
      },
    }
  }

  #dial(connection: number, target: Target): void {
    const known = () => this.#connections.has(connection)
    const told = {
      opened: () => {
        if (known()) this.enter((module) => module.onelock_opened(connection))
      },
      received: (bytes: Uint8Array) => {
        if (known()) this.enter((module) => module.onelock_received(connection, this.write(bytes)))
      },
      closed: (end: number, why: string) => {
        if (!this.#connections.delete(connection)) return
        this.enter((module) => module.onelock_closed(connection, end, this.write(why)))
      },
    }
    try {
      this.#connections.set(connection, this.#host.dial(target, told))
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      queueMicrotask(() => this.enter((module) => module.onelock_closed(connection, End.other, this.write(why))))
    }
  }

  /** Gives the module a turn when the code that runs now has returned, and has messages fetched. */
  soon(): void {
    if (this.#asked) return
    this.#asked = true
    queueMicrotask(() => {
      this.#asked = false
      this.enter((module) => module.onelock_turn())
    })
  }

  /** Lets the host tell something, and has messages fetched if there are any. */
  enter(tell: (module: Exports) => number): void {
    if (this.#defect !== undefined) return
    let messages: number
    try {
      messages = tell(this.exports)
    } catch (error) {
      this.fail(error)
      return
    }
    if (messages !== 0) this.onMessages()
  }

  /** The module has ended: what it says is not to be believed any more. */
  fail(error: unknown): void {
    this.#defect ??= String(error)
    this.onDefect(this.#defect)
  }

  /** What the module said when it ended by a defect. */
  get defect(): string | undefined {
    return this.#defect
  }

  /** Sends what was written, at once. */
  flush(): void {
    this.#host.flush()
  }

  keepAlive(alive: boolean): void {
    this.#host.keepAlive(alive)
  }

  /** Writes one argument at the beginning of the input; returns its length. */
  write(argument: string | Uint8Array): number {
    const bytes = typeof argument === 'string' ? encoder.encode(argument) : argument
    const at = this.exports.onelock_input(bytes.length)
    this.bytes.set(bytes, at)
    return bytes.length
  }

  text(at: number, length: number): string {
    return decoder.decode(this.bytes.subarray(at, at + length))
  }

  /** What the last call left; `null` for nothing. */
  result(length: number): string | null {
    return length < 0 ? null : this.text(this.exports.onelock_output(), length)
  }

  /** The same, an object. */
  object<T>(length: number): T | null {
    const text = this.result(length)
    return text === null ? null : (JSON.parse(text) as T)
  }
}

/** Options as the module reads them: name, type, value. */
export function encodeOptions(options: Record<string, unknown> | undefined): Uint8Array {
  if (options === undefined) return NONE
  const parts: Uint8Array[] = []
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue
    const named = encoder.encode(name)
    parts.push(Uint8Array.of(named.length), named)
    if (typeof value === 'boolean') {
      parts.push(Uint8Array.of(value ? 1 : 0))
    } else if (typeof value === 'number') {
      const number = new Uint8Array(9)
      number[0] = 2
      new DataView(number.buffer).setFloat64(1, value, true)
      parts.push(number)
    } else {
      const bytes = typeof value === 'string' ? encoder.encode(value) : (value as Uint8Array)
      parts.push(Uint8Array.of(3), word(bytes.length), bytes)
    }
  }
  return joined(parts)
}

const NONE = new Uint8Array(0)

/** A number of 32 bits as bytes. */
export function word(number: number): Uint8Array {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setUint32(0, number, true)
  return bytes
}

/** These bytes one behind the other. */
export function joined(parts: Uint8Array[]): Uint8Array {
  let length = 0
  for (const part of parts) length += part.length
  const all = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

/** Text or bytes as bytes. */
export function bytesOf(name: string | Uint8Array): Uint8Array {
  return typeof name === 'string' ? encoder.encode(name) : name
}
