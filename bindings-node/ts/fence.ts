// The check of fencing tokens at the resource.

import { invalid } from './errors'
import { native } from './native'

/**
 * For a resource inside this process: remembers the highest fencing token and refuses every lower one. An equal token
 * belongs to the same holder and passes.
 *
 * ```ts
 * const gate = new FenceGate() // beside the resource
 * if (!gate.admit(token)) throw new Error('there was a newer holder')
 * ```
 */
export class FenceGate {
  readonly #gate: InstanceType<typeof native.FenceGate>

  /** A gate that has seen no token yet, or this one. */
  constructor(highest = 0) {
    this.#gate = new native.FenceGate(checked(highest))
  }

  /** Whether the holder of this token may continue. */
  admit(token: number): boolean {
    return this.#gate.admit(checked(token))
  }

  /** The highest token seen. */
  get highest(): number {
    return this.#gate.highest()
  }
}

function checked(token: unknown): number {
  if (!Number.isSafeInteger(token) || (token as number) < 0) {
    const given =
      typeof token === 'bigint' || typeof token === 'string' ? `, not a ${typeof token}; use Number(...)` : ''
    throw invalid('check a fencing token', `a token is a number from 0 to 2^53 - 1, as lease.fencingToken is${given}`)
  }
  return token as number
}

/**
 * A Lua script for data on a Redis server: it refuses a write whose fencing token is lower than the highest seen. The
 * comment at its head describes the call.
 */
export const FENCE_GUARD_SCRIPT: string = native.fenceGuardScript()
