"""People: first names, last names, jobs."""

FIRST_NAMES = """
Ada Adam Agnes Aisha Alan Albert Alice Alma Amara Amir Ana Andrea Anita Anna Anton Arthur Astrid Axel Barbara Ben
Bianca Bilal Boris Brigitte Bruno Camille Carla Carlos Cecil Chen Chiara Clara Claude Conrad Dalia Daniel Daphne David
Dennis Diana Dmitri Dora Edgar Edith Eleni Elias Ella Emil Emma Enzo Erik Esther Eva Farid Fatima Felix Fiona Flora
Frank Frida Gabriel George Gina Grace Greta Gustav Hana Hannah Hans Harold Hasan Hedy Helen Henry Hugo Ibrahim Ida
Igor Ilse Ines Ingrid Irene Isaac Isabel Ivan Jack Jacob Jamal Jana Jane Jasper Joan Johan John Jonas Jorge Josef
Judith Julia Karim Karin Karl Katrin Kenji Kira Lars Laura Lea Lena Leo Leonie Liam Lidia Lina Linus Lisa Louis Lucia
Luis Lukas Luna Maria Marie Marco Margaret Martin Matteo Max Maya Mei Mia Mila Milan Mina Miriam Mona Nadia Naomi Nico
Nils Nina Noah Nora Olga Oliver Omar Oscar Otto Pablo Paul Paula Pedro Petra Philip Pia Priya Quentin Rachel Rafael
Raj Ralph Ravi Rita Robert Rosa Ruben Ruth Samir Sara Selma Sofia Sonia Stefan Stella Sven Tamara Tariq Teresa Theo
Thomas Tina Tom Uma Ursula Valentin Vera Victor Viola Walter Wanda Wendy Xenia Yara Yasmin Yuki Yusuf Zara Zoe
""".split()

LAST_NAMES = """
Abbott Adler Ahmed Albrecht Allen Almeida Andersen Arnold Baker Baldwin Barker Bauer Becker Bell Berg Bianchi Bishop
Blake Bloch Bond Brandt Brooks Brown Burton Carter Castro Chandra Clark Cohen Collins Conti Cooper Costa Curie Dalton
Darwin Davies Delgado Diaz Dixon Dubois Duran Eriksen Evans Farmer Fischer Fleming Fletcher Fontaine Forster Fox
Franklin Fuchs Garcia Gardner Gibson Gomez Graham Grant Gray Green Haas Hale Hansen Harper Hartmann Hayes Hill Hoffman
Holm Hopper Huang Hughes Hunter Ivanov Jansen Jensen Johnson Jones Kaplan Kaur Keller Kelly Khan King Klein Knight
Koch Kovacs Kumar Lang Larsen Lee Lehmann Lewis Lindgren Lopez Lovelace Lund Maier Marino Marsh Martinez Mason Mehta
Meyer Miller Moore Morales Moreau Morgan Moss Muller Nagy Nakamura Newton Nguyen Nielsen Noble Novak Olsen Ortiz Osman
Parker Patel Pearson Perez Petrov Porter Quinn Ramos Reed Reyes Richter Rivera Robinson Romano Rossi Russell Santos
Sato Schmidt Schneider Shah Sharma Shaw Silva Simmons Singh Smith Sokolov Stein Stone Suzuki Tanaka Taylor Thompson
Torres Turing Turner Vargas Vogel Wagner Walker Wallace Ward Weber Webster West White Winter Wolf Wood Wright Yamada
Young Zhang Zimmer
""".split()

JOBS = """
accountant actor architect artist astronomer baker banker barber biologist bookseller botanist builder butcher
carpenter cashier chef chemist clerk coach cook courier curator dancer dentist designer detective diver doctor driver
editor electrician engineer farmer firefighter fisherman florist gardener geologist glazier guide historian hunter
jeweller journalist judge lawyer lecturer librarian locksmith mason mathematician mechanic midwife miner model
musician nurse optician painter pharmacist photographer physicist pianist pilot plumber poet porter potter printer
professor programmer psychologist publisher ranger reporter roofer sailor scientist sculptor secretary shepherd singer
smith soldier surgeon surveyor tailor teacher technician translator vet violinist waiter weaver welder writer
""".split()
