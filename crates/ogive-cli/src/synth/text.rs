//! English to learn the vocabulary's merges from. What it says does not matter, so long as its words are common ones.

/// A page of plain prose.
pub(crate) const TEXT: &str = "\
Once upon a time there was a little town at the edge of a wide green valley. The people of the town were not rich, but \
they had good bread, clear water and enough wood for the winter. In the middle of the town there stood an old stone \
bridge, and under the bridge there was a river that never stopped talking. Every morning a girl named Anna walked over \
the bridge to the school on the other side, and every evening she walked home again. She liked to stand where the arch \
was highest and look down at the water. One day she asked her father, who had built walls all his life, what kept the \
stones from falling. He said that each stone wants to fall, and that each one holds the others up because of it. When \
two of them lean on each other, they can carry more than either of them could alone. She thought about that for a long \
time. The next day she took some blocks and made a small arch of her own on the kitchen table. At first it fell down, \
and then it fell down again, but in the end it stood, and she could put a heavy book on top of it. Her mother laughed and \
said that this was a very good answer to a question. After that Anna began to write down everything she wanted to know: \
how long a thing would last, why one word comes after another, what makes the wind turn in the night, whether a machine \
could learn to tell stories. Some of the questions had an answer in the books at the school. Others had none, or not yet, \
and these were the ones that she liked best. Years later, when people came from far away to see what she had made, they \
would ask her how it all started. Then she would take them to the bridge, show them the stones and the light on the \
water, and tell them that it is the same with every great work: you begin with something small that stands by itself, \
and then you find the next thing that it can carry. This is what there is to say about it. If you are going to use the \
program, give it a few words and see what it does with them; it will not know what they mean, but it is quick.";
