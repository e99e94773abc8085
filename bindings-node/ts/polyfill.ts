// `await using` needs these symbols. Node.js 18 before 18.18 lacks them; compilers fall back on the same definitions.

for (const name of ['dispose', 'asyncDispose'] as const) {
  if (!(name in Symbol)) {
    Object.defineProperty(Symbol, name, { value: Symbol.for(`nodejs.${name}`) })
  }
}
