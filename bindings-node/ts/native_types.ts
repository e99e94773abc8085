// What the native module is asked for. It is private to this package, and that of WebAssembly has the same functions.

/** An error as the native module returns it. */
export interface Failure {
  kind: string
  message: string
  lock?: string
  tried: string
  detail: string
  causes: string[]
  reason?: string
}

export interface NativeClient {
  stats(): unknown
}

interface NativeHolder {
  label: string
  pid: number
  host: string
  since: number
}

export interface NativeInspection {
  kind: string
  origin: string
  owner?: NativeHolder
  foreignHolder?: string
  holdCount: number
  ttlLeft?: number
  fencingToken?: number
  permits?: number
  free?: number
  waiting?: number
  waiters: { client?: NativeHolder; since: number }[]
}

export interface NativePage {
  entries: { name: Name; seen: NativeInspection; waiting?: number }[]
  next?: string
}

export interface NativeDiagnosis {
  severity: string
  grade: string
  findings: {
    server: string
    step: string
    severity: string
    detail: string
    todo: string
    error?: string
    measured: Record<string, number>
  }[]
}

export type Name = string | Uint8Array
export type Values = Record<string, unknown>

export interface Bridge {
  close(): void
  fetch(records: Float64Array): number
  open(url: string, options: Values): NativeClient | null
  check(call: number, client: NativeClient): void
  diagnose(call: number, client: NativeClient, name: Name): void
  closeClient(call: number, client: NativeClient): void
  inspect(call: number, client: NativeClient, name: Name): void
  list(call: number, client: NativeClient, pattern: Name, limit: number, cursor?: string): void
  forceRelease(call: number, client: NativeClient, name: Name, foreign: boolean): void
  acquire(call: number, client: NativeClient, kind: number, name: Name, wait: number, options?: Values): void
  acquireMany(
    call: number,
    clients: NativeClient[],
    kinds: number[],
    names: Name[],
    wait: number,
    options: Values[],
  ): void
  attach(call: number, client: NativeClient, kind: number, name: Name, proof: string, options?: Values): void
  isLocked(call: number, client: NativeClient, kind: number, name: Name, options?: Values): void
  permits(call: number, client: NativeClient, kind: number, name: Name, options?: Values): void
  setPermits(call: number, client: NativeClient, kind: number, name: Name, total: number, options?: Values): void
  cancel(call: number): boolean
  extend(call: number, lease: number, ttl: number): void
  downgrade(call: number, lease: number): void
  release(call: number, lease: number): number
  detach(lease: number): string | null
  forget(lease: number): boolean
  writes(lease: number): boolean
  fencingTokenOf(lease: number, name: Name): number
  isHeld(lease: number): boolean
  remaining(lease: number): number
  loss(lease: number): number
  holdCount(lease: number): number
  fencingGrade(lease: number): string
  watchLoss(lease: number): void
  watchJeopardy(lease: number): void
  setLogLevel(level: number): void
  answer(request: number, username: string | undefined, password: string): void
  refuse(request: number, reason: string): void
  takeLogLine(): string | null
  takeFailure(payload: number): Failure | null
  takeInspected(payload: number): NativeInspection | null
  takePage(payload: number): NativePage | null
  takeDiagnosis(payload: number): NativeDiagnosis | null
  takeFacts(payload: number): { grade: string; warnings: string[]; dangers: string[]; server: string } | null
}

export interface Native {
  Bridge: new (
    wakeup: (about?: number, code?: number, first?: number, second?: number) => void,
    libuv: boolean,
  ) => Bridge
  FenceGate: new (highest: number) => { admit(token: number): boolean; highest(): number }
  kinds(): { kind: string; number: number; notAcquired: boolean; retryable: boolean; todo: string }[]
  version(): string
  lossFailure(name: Name, reason: number): Failure
  fenceGuardScript(): string
}
