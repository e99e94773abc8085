// Who logs in on a new connection: the functions that programs give for it, and what they may answer.

import type { CredentialsProvider } from './options'

/** An answer to the native module: a user name, or none, and a password. */
export interface Given {
  username: string | undefined
  password: string
}

/** The functions, each for as long as connections may ask it. */
export class Providers {
  readonly #known = new Map<number, CredentialsProvider>()
  #last = 0

  add(provider: CredentialsProvider): number {
    this.#last += 1
    this.#known.set(this.#last, provider)
    return this.#last
  }

  remove(number: number): void {
    this.#known.delete(number)
  }

  /** Asks one of them. Rejects with what it threw, or with what is wrong with its answer. */
  async ask(number: number): Promise<Given> {
    const provider = this.#known.get(number)
    if (provider === undefined) throw new Error('it is gone')
    return read(await provider())
  }
}

/** Nothing of what was given is shown: it may be the secret. */
function read(given: unknown): Given {
  if (typeof given === 'string') return { username: undefined, password: given }
  if (typeof given === 'object' && given !== null) {
    const { username, password } = given as Record<string, unknown>
    const named = username === undefined || username === null || typeof username === 'string'
    if (named && typeof password === 'string') return { username: username ?? undefined, password }
  }
  throw new TypeError('it must give { username, password } or a password')
}

/** What was thrown, in words. */
export function reasonOf(thrown: unknown): string {
  try {
    return String(thrown)
  } catch {
    return 'it threw something without words'
  }
}
