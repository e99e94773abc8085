// Who re-enters a reentrant lock when nobody says so: the async context of `using`. Everything that is awaited inside the
// body belongs to it; what runs beside it does not.

import { AsyncLocalStorage } from 'node:async_hooks'

/** One run of `using` on a reentrant lock, and the runs around it. */
export interface Scope {
  /** The client and the name that were locked. */
  readonly client: object
  readonly key: string
  readonly owner: string
  /** Ends with the body: what it left running is nobody's part any more. */
  active: boolean
  readonly outer: Scope | undefined
}

const scopes = new AsyncLocalStorage<Scope>()

/** The owner of this name in the present async context. */
export function ownerHere(client: object, key: string): string | undefined {
  for (let scope = scopes.getStore(); scope !== undefined; scope = scope.outer) {
    if (scope.active && scope.client === client && scope.key === key) return scope.owner
  }
  return undefined
}

/** Runs the body as this owner. */
export async function runAs<T>(client: object, key: string, owner: string, body: () => Promise<T> | T): Promise<T> {
  const scope: Scope = { client, key, owner, active: true, outer: scopes.getStore() }
  try {
    return await scopes.run(scope, body)
  } finally {
    scope.active = false
  }
}
