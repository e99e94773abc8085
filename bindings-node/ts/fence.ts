// The resource's half of fencing: a token that nobody checks protects nothing.

import { invalid } from './errors'
import { native } from './native'

/** The highest token there can be. */
const MOST = 2n ** 53n - 1n

/**
 * For a resource inside this process: remembers the highest fencing token seen and turns away every lower one. An equal
 * token is the same holder and passes.
 *
 * ```ts
 * const gate = new FenceGate() // beside the resource
 * if (!gate.admit(token)) throw new Error('a newer holder was here')
 * ```
 */
export class FenceGate {
  readonly #gate: InstanceType<typeof native.FenceGate>

  /** A gate that has seen nothing yet, or this token. */
  constructor(highest = 0n) {
    this.#gate = new native.FenceGate(checked(highest))
  }

  /** Whether the holder of this token may go on. */
  admit(token: bigint): boolean {
    return this.#gate.admit(checked(token))
  }

  /** The highest token seen. */
  get highest(): bigint {
    return BigInt(this.#gate.highest())
  }
}

function checked(token: unknown): number {
  if (typeof token !== 'bigint' || token < 0n || token > MOST) {
    throw invalid('check a fencing token', 'a token is a bigint from 0 to 2^53 - 1, such as lease.fencingToken')
  }
  return Number(token)
}

/**
 * A Lua script for data on a Redis server: it refuses a write whose fencing token is lower than the highest seen. Its
 * head says how to call it.
 */
export const FENCE_GUARD_SCRIPT: string = native.fenceGuardScript()
