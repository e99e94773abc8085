// Credentials of new connections: the functions of the program, and the check of what they return.

import type { CredentialsProvider } from './options'

/** The answer to the native module. */
export interface Given {
  username: string | undefined
  password: string
}

/** The functions, each kept for as long as connections may call it. */
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

  /** Calls one of them. Rejects with what it throws, or with what is wrong with its result. */
  async ask(number: number): Promise<Given> {
    const provider = this.#known.get(number)
    if (provider === undefined) throw new Error('it is gone')
    return read(await provider())
  }
}

/** Errors do not show the value: it may be the secret. */
function read(given: unknown): Given {
  if (typeof given === 'string') return { username: undefined, password: given }
  if (typeof given === 'object' && given !== null) {
    const { username, password } = given as Record<string, unknown>
    const named = username === undefined || username === null || typeof username === 'string'
    if (named && typeof password === 'string') return { username: username ?? undefined, password }
  }
  throw new TypeError('it must give { username, password } or a password')
}

/** The text of a thrown value. */
export function reasonOf(thrown: unknown): string {
  try {
    return String(thrown)
  } catch {
    return 'it threw something without words'
  }
}
