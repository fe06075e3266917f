// What the page says of each kind of question, and how it draws it.
//
// options: what the options are called in a field, empty for none; least: how many there must be;
// hint: what the two thresholds do; chart: whether they are on the values that are drawn.

const KINDS = {
  yes_no: { options: "", least: 0, chart: true, hint: "Between the two the answer stays what it was." },
  choice: {
    options: "Options", least: 2, chart: false,
    hint: "Another option takes over when it leads by half the distance between the two.",
  },
  score: {
    options: "Levels, the lowest first", least: 2, chart: false,
    hint: "The level changes when the expected value is half the distance between the two, as a share of a step, beyond a threshold.",
  },
  any_of: {
    options: "Labels", least: 1, chart: false,
    hint: "They hold for each label; between the two its answer stays what it was.",
  },
};

export const kindOf = ({ kind }) => KINDS[kind];

/** Where lines are drawn for a question: shares of the height. */
export function levels(question) {
  if (kindOf(question).chart) return [question.enter, question.exit];
  return question.bands.map(([down, up]) => (down + up) / 2);
}

/** Whether the option at `i` is (one of) what a decision answers. */
export function holds(question, decision, i) {
  return decision.answers.length ? decision.answers[i] === "yes" : question.options[i] === decision.answer;
}

/** An answer for people: of a score with its expected value. */
export function inWords({ answer, value }) {
  return value == null ? answer : `${answer} (${value.toFixed(2)})`;
}
