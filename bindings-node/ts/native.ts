// The native module: where it is found, and what it looks like from here. Nobody but this package uses it.

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { platform } from './platform'
import { VERSION } from './version'

/** An error as the native module tells it. */
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

export interface NativeSeen {
  kind: string
  owner?: { label: string; pid: number; host: string; since: number }
  holdCount: number
  ttlLeft?: number
  fencingToken?: number
}

export type Name = string | Uint8Array
export type Values = Record<string, unknown>

export interface Session {
  close(): void
  fetch(records: Float64Array): number
  open(url: string, options: Values): NativeClient | null
  check(call: number, client: NativeClient): void
  closeClient(call: number, client: NativeClient): void
  inspect(call: number, client: NativeClient, name: Name): void
  forceRelease(call: number, client: NativeClient, name: Name, foreign: boolean): void
  acquire(call: number, client: NativeClient, kind: number, name: Name, wait: number, options?: Values): void
  attach(call: number, client: NativeClient, kind: number, name: Name, proof: string, options?: Values): void
  isLocked(call: number, client: NativeClient, kind: number, name: Name, options?: Values): void
  cancel(call: number): boolean
  extend(call: number, lease: number, ttl: number): void
  release(call: number, lease: number): number
  detach(lease: number): string | null
  forget(lease: number): boolean
  isHeld(lease: number): boolean
  remaining(lease: number): number
  loss(lease: number): number
  holdCount(lease: number): number
  fencingGrade(lease: number): string
  watchLoss(lease: number): void
  watchJeopardy(lease: number): void
  listen(level: number): void
  answer(request: number, username: string | undefined, password: string): void
  refuse(request: number, reason: string): void
  takeLine(): string | null
  takeFailure(parcel: number): Failure | null
  takeSeen(parcel: number): NativeSeen | null
  takeFacts(parcel: number): { grade: string; warnings: string[]; dangers: string[]; server: string } | null
}

export interface Native {
  Session: new (
    bell: (about?: number, code?: number, first?: number, second?: number) => void,
    libuv: boolean,
  ) => Session
  FenceGate: new (highest: number) => { admit(token: number): boolean; highest(): number }
  kinds(): { kind: string; number: number; notAcquired: boolean; retryable: boolean; todo: string }[]
  version(): string
  lossFailure(name: Name, reason: number): Failure
  fenceGuardScript(): string
}

/** Where this file is, or the bundle that it was made part of. */
const HERE = typeof __filename === 'string' ? __filename : (process.argv[1] ?? join(process.cwd(), 'index.js'))

/** Bundlers follow `require`, and cannot take native modules in; they leave this alone. */
const find = createRequire(HERE)

/** The package of this platform, a file that was built here, or an error that says what to do. */
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

/** Whether the program runs on libuv. Bun has its functions, which end the process; Deno has not all of them. */
export const hasLibuv = process.versions.bun === undefined && process.versions.deno === undefined
