// The task modular-sum of pmdkit/envs/tokens: (a + b) mod 10, answered by one token of ten, or by the end token.

export const MODULUS = 10;
export const VOCABULARY = MODULUS + 1;

/** A prompt is a number below 100, 10 a + b. */
export const tokensOf = (prompt) => [Math.floor(prompt / MODULUS), prompt % MODULUS];
export const rightAnswer = (prompt) => (tokensOf(prompt)[0] + tokensOf(prompt)[1]) % MODULUS;
