// The default owner of reentrant locks: the async context of `using`. It includes all that the body awaits.

import { AsyncLocalStorage } from 'node:async_hooks'

/** One run of `using` on a reentrant lock, and the enclosing runs. */
export interface Scope {
  /** The client and the key of the lock. */
  readonly client: object
  readonly key: string
  readonly owner: string
  /** False after the body has ended: calls that it left running do not belong to the scope. */
  active: boolean
  readonly outer: Scope | undefined
}

const scopes = new AsyncLocalStorage<Scope>()

/** The owner of this key in the current async context. */
export function ownerHere(client: object, key: string): string | undefined {
  for (let scope = scopes.getStore(); scope !== undefined; scope = scope.outer) {
    if (scope.active && scope.client === client && scope.key === key) return scope.owner
  }
  return undefined
}

/** Runs the body with this owner. */
export async function runAs<T>(client: object, key: string, owner: string, body: () => Promise<T> | T): Promise<T> {
  const scope: Scope = { client, key, owner, active: true, outer: scopes.getStore() }
  try {
    return await scopes.run(scope, body)
  } finally {
    scope.active = false
  }
}
