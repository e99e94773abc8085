// Loads the native module, and declares its types. It is private to this package.

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { platform } from './platform'
import { VERSION } from './version'

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

/** The path of this file, or of the bundle that contains it. */
const HERE = typeof __filename === 'string' ? __filename : (process.argv[1] ?? join(process.cwd(), 'index.js'))

/** Bundlers follow `require` and cannot include native modules; they do not follow this. */
const find = createRequire(HERE)

/** Loads a file that was built here, or the package of this platform; the error says what to install. */
function load(): Native {
  const chosen = process.env.ONELOCK_NATIVE
  if (chosen) return find(chosen)
  const name = platform()
  const built = join(HERE, '..', '..', `onelock.${name}.node`)
  if (existsSync(built)) return find(built)
  try {
    return find(`@onelock/${name}`)
  } catch (cause) {
    const missing = (cause as { code?: string }).code === 'MODULE_NOT_FOUND'
    const why = missing
      ? missingText(name)
      : `the package @onelock/${name} cannot be loaded: ${(cause as Error).message}`
    throw new Error(`onelock has no native module for ${name}: ${why}`, { cause })
  }
}

function missingText(name: string): string {
  if (/[\\/]dist[\\/]native\.js$/.test(HERE)) {
    return (
      `the package @onelock/${name} is not installed. It is an optional dependency of onelock: install again without ` +
      '--omit=optional, on the machine (or for the platform) that it is to run on'
    )
  }
  return (
    `a bundle, ${HERE}, does not find the package @onelock/${name}. A native module cannot be part of a bundle: name onelock ` +
    'as external and install it beside the bundle, or set ONELOCK_NATIVE to the path of the .node file'
  )
}

function checked(native: Native): Native {
  const found = native.version()
  if (found !== VERSION) {
    throw new Error(`onelock ${VERSION} found a native module of version ${found}: install both anew, with one version`)
  }
  return native
}

export const native: Native = checked(load())

/** Whether the program runs on libuv. In Bun its functions end the process, and Deno lacks some of them. */
export const hasLibuv = process.versions.bun === undefined && process.versions.deno === undefined
