/** The version of this package, as in package.json, which a bundle may not have. */
export const VERSION = '0.1.0'
